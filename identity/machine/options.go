// Package machine gets tokens for a server without a person: with the credentials of a client, with the token of a workload, or
// with the word of an identity provider for a person who has signed in there. What is secret goes only to servers that the
// config names, or that its own claims name.
package machine

import (
	"context"
	"os"
	"slices"
	"strings"

	"toolpost/config"
	"toolpost/config/offlimits"
	"toolpost/host/secret"
	"toolpost/tool"
	"toolpost/wire/bounded"
)

// Options describe how to get tokens. They are part of the options of a source.
type Options struct {
	Grant     string    `yaml:"grant" schema:"enum=client_credentials|jwt_bearer|id_jag" doc:"how to get tokens without a login: client_credentials, the client's own; jwt_bearer, for the token in assertion; id_jag, for a person whose identity provider vouches for them (enterprise-managed authorization); default: a person logs in"`
	Key       Document  `yaml:"key" doc:"the client's private key in PEM, P-256, P-384, Ed25519 or RSA, in place of client_secret"`
	KeyID     string    `yaml:"key_id" doc:"name of that key at the authorization server, if it has several"`
	Assertion Assertion `yaml:"assertion" doc:"a token of this workload, such as that of a Kubernetes service account: the grant of jwt_bearer, or what authenticates the client of client_credentials in place of a secret"`
	IDP       IDP       `yaml:"idp" doc:"the identity provider of id_jag"`
	Audience  string    `yaml:"audience" doc:"what the claim aud of the server's tokens may be, beside the server's URL"`
}

// A Document is a private text: a key or a token.
type Document struct {
	File   string `yaml:"file" kind:"path" doc:"file that holds it; it is read again for each token"`
	Secret string `yaml:"secret" doc:"name of the secret that holds it"`
}

// An Assertion is a token that another issuer has given us.
type Assertion struct {
	Document
	Audience string `yaml:"audience" doc:"what its claim aud must be; default: the authorization server"`
}

// An IDP is the identity provider that vouches for a person.
type IDP struct {
	Issuer       string   `yaml:"issuer" doc:"URL of the identity provider"`
	ClientID     string   `yaml:"client_id" doc:"id of our client at the identity provider, for which the ID token was issued"`
	ClientSecret string   `yaml:"client_secret" doc:"name of the secret that holds this client's password, if it has one"`
	Subject      Document `yaml:"subject" doc:"the person's ID token, for all calls"`
	Connection   string   `yaml:"connection" doc:"in place of subject: the connection that gives the ID token of each caller, with value: id_token"`
}

// The values of Grant.
const (
	grantClient    = "client_credentials"
	grantJWTBearer = "jwt_bearer"
	grantIDJAG     = "id_jag"
)

// A Config is all that the tokens of one server depend on.
type Config struct {
	Options
	Client
	Source config.Source // whose tokens they are: with its name, its secrets, and its redactor
	Server string        // the URL for which the tokens are
	Shown  string        // the same for messages

	// Person returns the ID token of the person for whom the tokens are, if the config names idp.connection.
	Person func(context.Context) (string, error)
}

// A Client is our client at the server's authorization server.
type Client struct {
	ID     string
	Secret string // the name of its secret, if it has one
	Issuer string // the authorization server that it belongs to, if the config names it
	Scopes []string
	Bound  bool // its tokens are bound to a key
}

// Check refuses options whose parts do not belong together. A secret is for one authorization server: the config has to name
// it, because otherwise the server of the tools would.
func (o Options) Check(c Client) error {
	for _, d := range []Document{o.Key, o.Assertion.Document, o.IDP.Subject} {
		if d.File != "" && d.Secret != "" {
			return tool.Errorf(tool.CodeInvalidInput, "oauth: give a key or token as a file or as a secret, not both")
		}
	}
	if says := o.mistake(c); says != "" {
		return tool.Errorf(tool.CodeInvalidInput, "oauth: %s", says)
	}
	return nil
}

func (o Options) mistake(c Client) string {
	ways := 0
	for _, given := range []bool{c.Secret != "", o.Key.set(), o.Assertion.set()} {
		if given {
			ways++
		}
	}
	switch {
	case o.Grant == "" && o != Options{}:
		return "key, key_id, assertion, idp and audience need a grant"
	case o.Grant == "":
		return ""
	case !slices.Contains([]string{grantClient, grantJWTBearer, grantIDJAG}, o.Grant):
		return "there is no such grant; use client_credentials, jwt_bearer or id_jag"
	case c.ID == "" && (o.Grant != grantJWTBearer || c.Secret != "" || o.Key.set()):
		return "the grant needs a client_id"
	case o.Grant == grantClient && ways != 1:
		return "client_credentials needs one of client_secret, key and assertion"
	case c.Secret != "" && o.Key.set():
		return "give client_secret or key, not both"
	case o.Grant == grantJWTBearer && !o.Assertion.set():
		return "jwt_bearer needs an assertion"
	case o.Grant == grantIDJAG && o.Assertion != Assertion{}:
		return "assertion is for the other grants; id_jag takes idp.subject"
	case o.Grant == grantIDJAG && (o.IDP.Issuer == "" || o.IDP.ClientID == "" || o.IDP.Subject.set() == (o.IDP.Connection != "")):
		return "id_jag needs idp with issuer, client_id, and either subject or connection"
	case o.Grant != grantIDJAG && o.IDP != IDP{}:
		return "idp is for the grant id_jag"
	case c.Issuer == "" && (c.Secret != "" || o.Assertion.Audience != ""):
		return "name the authorization server that gets the secret or the assertion in issuer"
	}
	return ""
}

// Documents lists the files that must stay private.
func (o Options) Documents(dir string) []string {
	return offlimits.Given(dir, o.Key.File, o.Assertion.File, o.IDP.Subject.File)
}

func (d Document) set() bool { return d != Document{} }

// maxDocument bounds a key or a token, in bytes.
const maxDocument = 1 << 20

// read returns the text. A file is read each time: those of workloads are replaced before they expire.
func (d Document) read(src config.Source, what string) (string, error) {
	if d.Secret != "" {
		return secretOf(src, d.Secret)
	}
	f, err := os.Open(offlimits.Under(src.Dir, d.File))
	if err != nil {
		return "", tool.Errorf(tool.CodeUnavailable, "oauth.%s: %w", what, err)
	}
	defer f.Close()
	text, err := bounded.ReadDocument(f, maxDocument)
	if err != nil {
		return "", tool.Errorf(tool.CodeUnavailable, "oauth.%s: %w", what, err)
	}
	return strings.TrimSpace(string(text)), nil
}

// secretOf returns the value of a secret, or "" if none is named.
func secretOf(src config.Source, name string) (string, error) {
	if name == "" {
		return "", nil
	}
	if src.Secrets == nil {
		return (*secret.Vault)(nil).Secret(name)
	}
	return src.Secrets.Secret(name)
}
