// Package lent seals the keys of a call's connections for the run of one node, and reads to which hosts the node has sent them.
package lent

import (
	"context"
	"crypto/ecdh"
	"crypto/hpke"
	"strings"
	"unicode"

	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// A key is the current value of a connection, for one call, and to whom its hub lets the node send it.
type key struct {
	Connection string   `json:"connection"`
	Hosts      []string `json:"hosts"`
	Methods    []string `json:"methods,omitempty"`
	Paths      []string `json:"paths,omitempty"`
	Value      string   `json:"value"`
}

// A Box opens what was sealed for one run of a node. Its key is in no file: after the run nothing of it can be opened.
type Box struct{ key hpke.PrivateKey }

// NewBox makes a box.
func NewBox() (*Box, error) {
	k, err := hpke.DHKEM(ecdh.X25519()).GenerateKey()
	return &Box{k}, err
}

// Public is what Seal needs.
func (b *Box) Public() []byte { return b.key.PublicKey().Bytes() }

// Seal writes the keys of a call so that one box alone opens them, for one purpose.
func Seal(ctx context.Context, to, purpose []byte, keys []*tool.Credential) ([]byte, error) {
	box, err := hpke.DHKEM(ecdh.X25519()).NewPublicKey(to)
	if err != nil {
		return nil, err
	}
	var lent []key
	for _, c := range keys {
		value, err := c.Value(ctx)
		if err != nil {
			return nil, err
		}
		lent = append(lent, key{c.Connection, c.Hosts, c.Methods, c.Paths, value})
	}
	plain, err := strictjson.Marshal(lent)
	if err != nil {
		return nil, err
	}
	return hpke.Seal(box, hpke.HKDFSHA256(), hpke.AES256GCM(), purpose, plain)
}

// Open is the inverse.
func (b *Box) Open(sealed, purpose []byte) (all []*tool.Credential, err error) {
	var lent []key
	plain, err := hpke.Open(b.key, hpke.HKDFSHA256(), hpke.AES256GCM(), purpose, sealed)
	if err == nil {
		err = strictjson.Unmarshal(plain, &lent)
	}
	if err != nil {
		return nil, tool.Errorf(tool.CodeAccessDenied, "the keys of this call were not sealed for it").Because(tool.ReasonLink)
	}
	for _, k := range lent {
		all = append(all, &tool.Credential{
			Connection: k.Connection, Hosts: k.Hosts, Methods: k.Methods, Paths: k.Paths,
			Value: func(context.Context) (string, error) { return k.Value, nil },
		})
	}
	return all, nil
}

// Most bounds the text of uses, in bytes.
const Most = 8 << 10

// Uses writes which hosts got the keys of a call, or nil if it had none.
func Uses(r *tool.Record) []byte {
	if r == nil || len(r.Connections) == 0 {
		return nil
	}
	return []byte(strings.Join(r.Connections, "\n"))
}

// Note notes in the record of a call which hosts got its keys, as its node says.
func Note(uses []byte, keys []*tool.Credential) {
	for line := range strings.Lines(string(uses)) {
		name, host, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		for _, c := range keys {
			if c.Connection == name && c.Used != nil && host != "" && len(host) < 256 && !strings.ContainsFunc(host, unicode.IsSpace) {
				c.Used(host)
			}
		}
	}
}
