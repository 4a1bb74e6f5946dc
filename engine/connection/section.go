package connection

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"

	"toolpost/config"
	"toolpost/host/walls"
	"toolpost/identity/oauth"
	"toolpost/tool"
	"toolpost/wire/nearest"
	"toolpost/wire/regex"
	"toolpost/wire/strictjson"
)

// Options is one entry of the section connections.
type Options struct {
	Name      string   `yaml:"name" doc:"name of the connection, by which sources and callers ask for it"`
	Preset    string   `yaml:"preset" schema:"enum=atlassian|github|gitlab|google|linear|microsoft|notion|sentry|slack" doc:"a known provider, whose addresses and hosts are used unless others are given"`
	Issuer    string   `yaml:"issuer" doc:"address of the authorization server, which says what its endpoints are"`
	Authorize string   `yaml:"authorize" doc:"address of the page on which a person agrees; default: as the issuer says"`
	Token     string   `yaml:"token" doc:"address of the token endpoint; default: as the issuer says"`
	Device    string   `yaml:"device" doc:"address of the endpoint for device codes; default: as the issuer says"`
	Revoke    string   `yaml:"revoke" doc:"address of the endpoint that revokes tokens; default: as the issuer says"`
	ClientID  string   `yaml:"client_id" doc:"id of the client that you registered with the provider; default: this program registers one, if the provider lets it"`
	Secret    string   `yaml:"client_secret" doc:"name of the secret that holds this client's password, if it has one"`
	Redirect  string   `yaml:"redirect" doc:"address that the browser comes back to, which ends in /v1/connections/callback/NAME; needed if the console is behind a proxy"`
	Scopes    []string `yaml:"scopes" doc:"scopes that a person is asked for"`
	Hosts     []string `yaml:"hosts" doc:"hosts that the key may be sent to, written as in walls.network"`
	Methods   []string `yaml:"methods" doc:"HTTP methods of the requests that may have the key; default: all"`
	Paths     []string `yaml:"paths" doc:"paths of the requests that may have the key, with * for any text; default: all"`
	Env       string   `yaml:"env" doc:"variable of a program that holds a placeholder for the key; the key itself with expose"`
	Header    string   `yaml:"header" doc:"header with the key, with {key} in its place; default of sources over HTTP: Authorization: Bearer {key}. Requests of programs get it only if it is given here, and they have none of that name"`
	Key       string   `yaml:"key" schema:"enum=pasted" doc:"pasted: a person gives the key itself"`
	Expose    bool     `yaml:"expose" doc:"give programs the key itself, in env, since they pin certificates; they can then send it anywhere"`
	Remote    []string `yaml:"remote" doc:"sources of other nodes of the fleet that get the key, sealed for one call; their nodes name the same hosts"`
	Value     string   `yaml:"value" schema:"enum=access_token|id_token" doc:"id_token: the key is what says who the person is (OpenID Connect), for oauth.idp of MCP servers; default: the access token"`
	Grant     string   `yaml:"grant" schema:"enum=client_credentials" doc:"client_credentials: the token is that of the client, and all callers use it"`
}

const (
	pasted  = "pasted"
	idToken = "id_token"
	machine = "client_credentials"
	bearer  = "Authorization: Bearer {key}"
	keyMark = "{key}"
)

// Validate checks that the entry can be used.
func (o *Options) Validate() error {
	o.preset()
	name, value, _ := strings.Cut(cmp.Or(o.Header, bearer), ":")
	known := slices.Sorted(maps.Keys(presets()))
	switch {
	case o.Key != "" && o.Key != pasted: // it is not shown: people write the key itself here
		return fmt.Errorf("connection %q: write `key: pasted`; keys do not belong in the config: each caller gives its own with "+
			"`toolpost connections add %[1]s`", o.Name)
	case o.Preset != "" && !slices.Contains(known, o.Preset):
		return fmt.Errorf("connection %q: unknown preset %q; there are %s%s", o.Name, o.Preset, strings.Join(known, ", "), nearest.Hint(o.Preset, known))
	case !isName().MatchString(o.Name):
		return errors.New("a connection has a name of lower-case letters, digits and -, such as `name: github`")
	case len(o.Hosts) == 0:
		return fmt.Errorf("connection %q names no hosts, so its key could be sent nowhere; give it some, such as `hosts: [api.example.com]`", o.Name)
	case o.Env != "" && !isVariable().MatchString(o.Env):
		return fmt.Errorf("connection %q: env is the name of a variable, not %q", o.Name, o.Env)
	case !httpguts.ValidHeaderFieldName(name) || strings.Count(value, keyMark) != 1 || !httpguts.ValidHeaderFieldValue(value):
		return fmt.Errorf("connection %q: header is a name and a value with {key} in it, such as `Authorization: Bearer {key}`", o.Name)
	case o.Expose && o.Env == "":
		return fmt.Errorf("connection %q: expose needs env, the variable that holds the key", o.Name)
	case o.Key != "" && o.Issuer+o.Token+o.ClientID+o.Grant != "":
		return fmt.Errorf("connection %q: a key is pasted, or it comes from a provider", o.Name)
	case o.Key == "" && o.Issuer == "" && o.Token == "":
		return fmt.Errorf("connection %q: say where its key comes from: a preset, an issuer, its endpoints, or `key: pasted`", o.Name)
	case o.Value == idToken && (o.Key != "" || o.Grant != "" || !slices.Contains(o.Scopes, "openid")):
		return fmt.Errorf("connection %q: an id_token is for a person who signs in: it needs the scope openid", o.Name)
	case o.Grant != "" && (o.Grant != machine || o.ClientID == "" || o.Secret == ""):
		return fmt.Errorf("connection %q: grant is client_credentials, and needs a client_id and a client_secret", o.Name)
	}
	for _, address := range []string{o.Issuer, o.Authorize, o.Token, o.Device, o.Revoke, o.Redirect} {
		if address != "" && !oauth.Safe(address) {
			return fmt.Errorf("connection %q: %q is not an https address", o.Name, address)
		}
	}
	if o.Redirect != "" && !strings.HasSuffix(o.Redirect, CallbackPath+o.Name) {
		return fmt.Errorf("connection %q: the address redirect ends in %s%s, where the console waits for its provider", o.Name, CallbackPath, o.Name)
	}
	for _, path := range o.Paths {
		if !strings.HasPrefix(path, "/") {
			return fmt.Errorf("connection %q: the path %q does not begin with /", o.Name, path)
		}
	}
	return walls.CheckHosts(o.Hosts)
}

var (
	isName     = regex.Lazy(`^[a-z0-9][a-z0-9-]{0,62}$`)
	isVariable = regex.Lazy(`^[A-Za-z_][A-Za-z0-9_]*$`)
)

// preset fills what the entry leaves to a known provider, which is named, or has its issuer.
func (o *Options) preset() {
	for name, p := range presets() {
		if name != o.Preset && (o.Preset != "" || o.Issuer == "" || strings.TrimSuffix(o.Issuer, "/") != p.Issuer) {
			continue
		}
		o.Issuer, o.Token = cmp.Or(o.Issuer, p.Issuer), cmp.Or(o.Token, p.Token)
		o.Authorize, o.Device = cmp.Or(o.Authorize, p.Authorize), cmp.Or(o.Device, p.Device)
		o.Revoke = cmp.Or(o.Revoke, p.Revoke)
		if len(o.Hosts) == 0 {
			o.Hosts = p.Hosts
		}
		o.Preset = name
	}
}

// A provider is what is known of a public one.
type provider struct {
	oauth.Server
	Hosts  []string
	Params map[string]string // of the page on which a person agrees
}

// presets are the known providers. Those without endpoints publish them.
func presets() map[string]provider {
	inBody := []string{"client_secret_post"}
	return map[string]provider{
		"github": {
			Server: oauth.Server{
				Issuer: "https://github.com/login/oauth", Authorize: "https://github.com/login/oauth/authorize",
				Token: "https://github.com/login/oauth/access_token", Device: "https://github.com/login/device/code", Methods: inBody,
			},
			Hosts: []string{"api.github.com"},
		},
		"gitlab": {Server: oauth.Server{Issuer: "https://gitlab.com"}, Hosts: []string{"gitlab.com"}},
		"google": {
			Server: oauth.Server{Issuer: "https://accounts.google.com"}, Hosts: []string{"*.googleapis.com"},
			Params: map[string]string{"access_type": "offline", "prompt": "consent"},
		},
		"microsoft": {
			Server: oauth.Server{
				Issuer: "https://login.microsoftonline.com/common/v2.0", Authorize: "https://login.microsoftonline.com/common/oauth2/v2.0/authorize",
				Token: "https://login.microsoftonline.com/common/oauth2/v2.0/token", Methods: inBody,
				Device: "https://login.microsoftonline.com/common/oauth2/v2.0/devicecode",
			},
			Hosts: []string{"graph.microsoft.com"},
		},
		"slack": {
			Server: oauth.Server{
				Issuer: "https://slack.com", Authorize: "https://slack.com/oauth/v2_user/authorize", // a person's token; that of v2 is a bot's
				Token: "https://slack.com/api/oauth.v2.user.access", Methods: inBody,
			},
			Hosts: []string{"slack.com"},
		},
		"atlassian": {
			Server: oauth.Server{
				Issuer: "https://auth.atlassian.com", Authorize: "https://auth.atlassian.com/authorize", Token: "https://auth.atlassian.com/oauth/token",
				Methods: inBody,
			},
			Hosts: []string{"api.atlassian.com"}, Params: map[string]string{"audience": "api.atlassian.com", "prompt": "consent"},
		},
		"notion": {
			Server: oauth.Server{
				Issuer: "https://api.notion.com", Authorize: "https://api.notion.com/v1/oauth/authorize", Token: "https://api.notion.com/v1/oauth/token",
			},
			Hosts: []string{"api.notion.com"}, Params: map[string]string{"owner": "user"},
		},
		"linear": {
			Server: oauth.Server{
				Issuer: "https://linear.app", Authorize: "https://linear.app/oauth/authorize", Token: "https://api.linear.app/oauth/token",
				Revoke: "https://api.linear.app/oauth/revoke", Methods: inBody,
			},
			Hosts: []string{"api.linear.app"},
		},
		"sentry": {
			Server: oauth.Server{
				Issuer: "https://sentry.io", Authorize: "https://sentry.io/oauth/authorize/", Token: "https://sentry.io/oauth/token/",
				Methods: inBody,
			},
			Hosts: []string{"sentry.io"},
		},
	}
}

// Section is the section of a config that lists connections.
func Section() config.Part {
	return config.Part{
		Name: "connections", Options: []Options(nil),
		Doc: "accounts with providers that each caller connects once, and keys that each pastes; calls of the sources that name one use that of their caller",
	}
}

// A plan is what a config says about connections.
type plan struct {
	named   map[string]*Options
	sources map[string][]*Options // by the names of the sources of this node that use them
}

// Read reads the connections of a config, and those that its sources name.
func (c *Connections) Read(cfg *config.Config) (apply func(), err error) {
	p, err := read(cfg)
	return func() { c.now.Store(p) }, err
}

func read(cfg *config.Config) (*plan, error) {
	var entries []Options
	if err := cfg.Section(Section().Name).Decode(&entries); err != nil {
		return nil, err
	}
	p := &plan{named: map[string]*Options{}, sources: map[string][]*Options{}}
	for i := range entries {
		o := &entries[i]
		if p.named[o.Name] != nil {
			return nil, tool.Errorf(tool.CodeInvalidInput, "two connections are called %q; give one of them another name", o.Name)
		}
		p.named[o.Name] = o
	}
	for _, src := range cfg.Sources {
		for _, name := range src.Connections {
			o := p.named[name]
			if o == nil {
				known := slices.Sorted(maps.Keys(p.named))
				return nil, src.Placed(tool.Errorf(tool.CodeInvalidInput, "source %q uses the connection %q, which the section connections does not have%s",
					src.Name, name, nearest.Hint(name, known)))
			}
			for _, other := range p.sources[src.Name] {
				if o.Env != "" && other.Env == o.Env {
					return nil, src.Placed(tool.Errorf(tool.CodeInvalidInput, "source %q uses the connections %s and %s, which both have env %s: "+
						"give each a variable of its own", src.Name, other.Name, o.Name, o.Env))
				}
			}
			p.sources[src.Name] = append(p.sources[src.Name], o)
		}
	}
	return p, nil
}

// Problems finds the clients whose secret has no value.
func (c *Connections) Problems() (found []config.Problem) {
	named := c.now.Load().named
	for _, name := range slices.Sorted(maps.Keys(named)) {
		if secret := named[name].Secret; secret != "" {
			if _, err := c.env.Secrets.Secret(secret); err != nil {
				found = append(found, config.Problem{About: "connection " + name, Err: err})
			}
		}
	}
	return found
}

// Describe returns the connections of each source of a config as its programs are told of them: without values.
func Describe(cfg *config.Config) (map[string][]*tool.Credential, error) {
	p, err := read(cfg)
	if err != nil {
		return nil, err
	}
	described := map[string][]*tool.Credential{}
	for source, list := range p.sources {
		for _, o := range list {
			described[source] = append(described[source], o.credential())
		}
	}
	return described, nil
}

func (o *Options) credential() *tool.Credential {
	return &tool.Credential{
		Connection: o.Name, Hosts: o.Hosts, Methods: o.Methods, Paths: o.Paths, Env: o.Env, Header: o.Header, Exposed: o.Expose,
	}
}

// origin is what a value comes from. A value is used for no other origin, since it would be sent to whom it is not for: a token is of
// a client of a server, and a key that a person pasted is for hosts.
func (o *Options) origin() string {
	of := []string{o.Issuer, o.Token, o.ClientID}
	if o.Value != "" {
		of = append(of, o.Value)
	}
	if o.Key == pasted {
		of = slices.Sorted(slices.Values(o.Hosts))
	}
	b, _ := strictjson.Marshal(append([]string{o.Key}, of...)) // strings
	return string(b)
}

// granted returns what a provider has granted, with the key in the place of the access token.
func (o *Options) granted(t oauth.Token, err error) (oauth.Token, error) {
	if err != nil || o.Value != idToken {
		return t, err
	}
	id, ok := oauth.ReadJWT(t.ID)
	if t.Access, t.Lasts = t.ID, id.Left(); !ok || t.Lasts <= 0 {
		err = tool.Errorf(tool.CodeAccessDenied, "the provider of %s gave no ID token that is valid now", o.Name).Because(oauth.Ended)
	}
	return t, err
}

// kind says in one word how callers connect.
func (o *Options) kind() string {
	return cmp.Or(o.Key, o.Grant, "account")
}
