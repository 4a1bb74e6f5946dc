// Package membership keeps what makes a machine a member of a fleet: its key, its name, and the authority of its hubs.
package membership

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/nats-io/nkeys"
	"golang.org/x/sys/unix"

	"toolpost/engine/member"
	"toolpost/fleet/certs"
	"toolpost/fleet/invite"
	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// A Pass is what a node keeps to belong to a fleet. It has secrets: it lies in the state folder, for its user alone.
type Pass struct {
	ID    string      `json:"id"`
	Name  string      `json:"name"`
	Role  member.Role `json:"role"`
	Seed  string      `json:"seed"`             // of its nkey
	Next  string      `json:"next,omitempty"`   // of the one that replaces it, while hubs may not know it yet
	CA    string      `json:"ca"`               // the certificate of the fleet's authority
	CAKey string      `json:"ca_key,omitempty"` // its key, of hubs alone: every hub makes the certificate of its server
	Named bool        `json:"named,omitempty"`  // the authority is the operator's: each hub has a certificate for the host of its address
	Hubs  []string    `json:"hubs"`             // their addresses, as HOST:PORT
}

// File is the file of a pass in a state folder.
const File = "fleet.json"

// Load reads the pass in a state folder, or returns nil if there is none.
func Load(state string) (*Pass, error) {
	path := filepath.Join(state, File)
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var p Pass
	if err == nil {
		err = strictjson.Unmarshal(b, &p) // a later version may have written more
	}
	if err != nil {
		return nil, tool.Errorf(tool.CodeInvalidInput, "%s, by which this node belongs to its fleet, cannot be read: %w; "+
			"remove it and join again", path, err)
	}
	return &p, nil
}

// Save writes the pass into a state folder, whole or not at all.
func (p *Pass) Save(state string) error {
	b, err := strictjson.Marshal(p)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(state, 0o700); err != nil {
		return err
	}
	temporary, err := os.CreateTemp(state, File+".*") // for its user alone
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(temporary.Name()) }()
	_, err = temporary.Write(b)
	if err = errors.Join(err, temporary.Sync(), temporary.Close()); err != nil {
		return err
	}
	return os.Rename(temporary.Name(), filepath.Join(state, File))
}

// Renew adds the hubs of another invitation to the fleet of the pass: they may have other addresses by now.
func (p *Pass) Renew(i invite.Line, state string) error {
	ca, err := certs.Parse(p.CA)
	if err != nil {
		return err
	}
	if !i.To(ca.Raw) {
		return tool.Errorf(tool.CodeConflict, "this machine belongs to another fleet than this token; to leave it, remove %s", filepath.Join(state, File))
	}
	known := len(p.Hubs)
	for _, hub := range i.Hubs {
		if !slices.Contains(p.Hubs, hub) {
			p.Hubs = append(p.Hubs, hub)
		}
	}
	if len(p.Hubs) == known {
		return nil
	}
	return p.Save(state)
}

// Lock makes this program the only one that uses the pass, until it closes the file: two would take each other's calls, and
// of two hubs, one would be at an address that no worker knows.
func Lock(state string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(state, File+".lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = f.Close()
		return nil, tool.Errorf(tool.CodeConflict, "another program runs as this node, with the state folder %s; stop it first", state)
	}
	return f, nil
}

// NewKey makes an nkey for a node.
func NewKey() (seed, public string, err error) {
	pair, err := nkeys.CreateUser()
	if err != nil {
		return "", "", err
	}
	secret, err := pair.Seed()
	if err != nil {
		return "", "", err
	}
	public, err = pair.PublicKey()
	return string(secret), public, err
}

// Public returns the public key of the pass.
func (p *Pass) Public() (string, error) {
	pair, err := nkeys.FromSeed([]byte(p.Seed))
	if err != nil {
		return "", tool.Errorf(tool.CodeInvalidInput, "the key of this node cannot be read: %w; join the fleet again", err)
	}
	return pair.PublicKey()
}

// Sign proves that the node has its key.
func (p *Pass) Sign(nonce []byte) ([]byte, error) {
	pair, err := nkeys.FromSeed([]byte(p.Seed))
	if err != nil {
		return nil, err
	}
	return pair.Sign(nonce)
}

// Authority reads the authority in the pass of a hub.
func (p *Pass) Authority() (*certs.Authority, error) {
	a, err := certs.Decode(p.CA, p.CAKey)
	if err != nil {
		return nil, tool.Errorf(tool.CodeInvalidInput, "the fleet's authority in the pass of this hub cannot be read: %w; join again", err)
	}
	return a, nil
}

// Trust is the TLS config of a member: it speaks to hubs of its own fleet alone.
func (p *Pass) Trust() (*tls.Config, error) {
	ca, err := certs.Parse(p.CA)
	if err != nil {
		return nil, tool.Errorf(tool.CodeInvalidInput, "the pass of this node cannot be read: %w; join the fleet again", err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(ca)
	c := &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: pool, ServerName: certs.ServerName}
	if p.Named {
		c.ServerName = "" // the client fills in the host
	}
	return c, nil
}

// Certify notes the authority of a new fleet: the one in files that signed the certificate of the first hub, whose host is given, or a new one.
func (p *Pass) Certify(files certs.Files, host string) error {
	if p.Named {
		ca, err := files.Authority()
		if err != nil {
			return err
		}
		if _, err = files.Server(host, ca); err == nil {
			p.CA = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ca.Raw}))
		}
		return err
	}
	made, err := certs.New()
	if err == nil {
		p.CA, p.CAKey, err = made.Encode()
	}
	return err
}

// Invite makes an invitation for nodes of a role.
func (p *Pass) Invite(ctx context.Context, register member.Register, t member.Ticket, ttl time.Duration, hubs []string) (invite.Line, error) {
	ca, err := certs.Parse(p.CA)
	if err != nil {
		return invite.Line{}, err
	}
	i := invite.New(hubs, ca.Raw)
	t.Digest = invite.Digest(i.Token())
	return i, register.AddTicket(ctx, t, ttl)
}
