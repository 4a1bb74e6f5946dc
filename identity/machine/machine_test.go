package machine_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"toolpost/identity/oauth"
	"toolpost/internal/kit"
	"toolpost/tool"
	"toolpost/tool/tooltest"
)

const (
	bySecret    = "client_id: us, client_secret: S, issuer: 'ISSUER', grant: client_credentials"
	byKey       = "client_id: us, key: {secret: K}, grant: client_credentials"
	byWorkload  = "client_id: us, assertion: {secret: W}, grant: client_credentials"
	forWorkload = "assertion: {secret: W}, grant: jwt_bearer"
	forPerson   = "client_id: us, client_secret: S, issuer: 'ISSUER', grant: id_jag, idp: {issuer: 'IDP', client_id: desk, subject: {secret: P}}"
)

func TestClientAuthenticatesAsTheServerWants(t *testing.T) {
	tooltest.NoLeaks(t)
	for _, one := range []struct {
		fields, methods string
		form            string // a field that authenticates, or "" for the header
	}{
		{bySecret, "", ""}, {bySecret, "client_secret_basic", ""}, {bySecret, "client_secret_post", "client_secret"},
		{byKey, "private_key_jwt", "client_assertion"}, {byWorkload, "private_key_jwt", "client_assertion"},
	} {
		l := newLab(t)
		if one.methods != "" {
			l.metadata = map[string]any{"token_endpoint_auth_methods_supported": []string{one.methods}}
		}
		got, err := l.first(one.fields, secrets{"S": "hush", "K": l.pem(), "W": l.workload(nil)})
		kit.OK(t, err, one.methods)
		kit.Equal(t, got, oauth.Access{Token: "opaque"})
		form := l.asked[0]
		kit.Equal(t, form.Get("resource"), l.server.URL+"/mcp")
		kit.Equal(t, form.Get("grant_type"), "client_credentials")
		kit.Equal(t, l.auth[0] == "", one.form != "", "no header", one.methods)
		kit.Equal(t, form.Get(one.form) != "", one.form != "", one.form)
		if jwt, ok := oauth.ReadJWT(form.Get("client_assertion")); one.fields == byKey {
			kit.Equal(t, ok && jwt.Text("sub") == "us" && jwt.Text("aud") == l.issuer.URL && !jwt.Expired(), true)
		}
	}
}

func TestTokenIsRenewedByOneRequest(t *testing.T) {
	tooltest.NoLeaks(t)
	l := newLab(t)
	l.answer = map[string]any{"expires_in": 1}
	tokens, err := l.open(byKey, secrets{"K": l.pem()})
	kit.OK(t, err)
	kit.OK(t, kit.Err(tokens.Replace(t.Context(), oauth.Access{}, refusal(http.StatusUnauthorized, "Bearer"))))
	l.answer = map[string]any{"access_token": "next"}
	kit.Eventually(t, "the token is due", func() bool {
		var work sync.WaitGroup
		var got atomic.Int64
		for range 64 {
			work.Go(func() {
				if now, err := tokens.Token(t.Context()); err == nil && now.Token == "next" {
					got.Add(1)
				}
			})
		}
		work.Wait()
		return got.Load() == 64
	})
	kit.Equal(t, len(l.asked), 2, "requests for tokens")
}

func TestTokenIsUsedUntilItsEndIfThereIsNoOther(t *testing.T) {
	tooltest.NoLeaks(t)
	for _, expires := range []any{3600, ""} {
		l := newLab(t)
		l.answer = map[string]any{"expires_in": expires}
		tokens, err := l.open(byKey, secrets{"K": l.pem()})
		kit.OK(t, err)
		first, err := tokens.Replace(t.Context(), oauth.Access{}, refusal(http.StatusUnauthorized, "Bearer"))
		kit.OK(t, err)
		l.handle = func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) }
		now, err := tokens.Replace(t.Context(), first, refusal(http.StatusForbidden, `Bearer scope="write"`))
		kit.Equal(t, len(l.asked), 2, "requests for tokens")
		if expires == "" { // it is not known to be valid still
			kit.Equal(t, tool.CodeOf(err), tool.CodeUnavailable)
			continue
		}
		kit.OK(t, err)
		kit.Equal(t, now, first)
	}
}

// A server that refuses every token must not make us ask for one again and again.
func TestRefusedRequestsAreNotRepeated(t *testing.T) {
	tooltest.NoLeaks(t)
	l := newLab(t)
	l.handle = func(w http.ResponseWriter, _ *http.Request) {
		reply(w, 401, map[string]any{"error": "invalid_client", "error_description": "not with hush"}, nil)
	}
	tokens, err := l.open(byKey, secrets{"K": l.pem()})
	kit.OK(t, err)
	for range 10 {
		_, err := tokens.Replace(t.Context(), oauth.Access{}, refusal(http.StatusUnauthorized, "Bearer"))
		kit.Fails(t, err, "invalid_client")
		kit.Equal(t, tool.CodeOf(err), tool.CodeAccessDenied)
		kit.Equal(t, strings.Contains(err.Error(), "hush"), false)
	}
	kit.Equal(t, len(l.asked), 1, "requests that are refused")
	l = newLab(t)
	tokens, err = l.open(byKey, secrets{"K": l.pem()})
	kit.OK(t, err)
	var now oauth.Access
	for range 10 {
		now, err = tokens.Replace(t.Context(), now, refusal(http.StatusUnauthorized, "Bearer"))
		kit.OK(t, err)
	}
	kit.Equal(t, len(l.asked), 1, "requests for tokens that the server refuses")
}

func TestMoreScopesAreRequestedOnce(t *testing.T) {
	tooltest.NoLeaks(t)
	l := newLab(t)
	l.answer = map[string]any{"scope": "read"}
	tokens, err := l.open(byKey+", scopes: [own]", secrets{"K": l.pem()})
	kit.OK(t, err)
	now, err := tokens.Replace(t.Context(), oauth.Access{}, refusal(http.StatusUnauthorized, `Bearer scope="read"`))
	kit.OK(t, err)
	kit.Equal(t, l.asked[0].Get("scope"), "own read")
	l.answer = map[string]any{"access_token": "wider"}
	more := refusal(http.StatusForbidden, `Bearer error="insufficient_scope", scope="write"`)
	now, err = tokens.Replace(t.Context(), now, more)
	kit.OK(t, err)
	kit.Equal(t, now.Token, "wider")
	kit.Equal(t, l.asked[1].Get("scope"), "own read write")
	again, err := tokens.Replace(t.Context(), now, more)
	kit.OK(t, err)
	kit.Equal(t, again, now)
	kit.Equal(t, len(l.asked), 2)
}

// Credentials stay here if a server, or an authorization server, says that it is another one.
func TestCredentialsAreNotSentToAnother(t *testing.T) {
	tooltest.NoLeaks(t)
	for says, change := range map[string]func(l *lab){
		"the config names": func(l *lab) { l.resource = map[string]any{"authorization_servers": []string{l.idp.URL}} },
		"does not say which authorization server": func(l *lab) {
			l.resource = map[string]any{"resource": "https://other.example/mcp"}
		},
		"another issuer": func(l *lab) { l.metadata = map[string]any{"issuer": l.idp.URL} },
		"not an https address": func(l *lab) {
			l.metadata = map[string]any{"token_endpoint": "http://other.example/token"}
		},
		"may not send us": func(l *lab) { l.metadata = map[string]any{"token_endpoint": "https://169.254.169.254/token"} },
		"gives no tokens": func(l *lab) { l.metadata = map[string]any{"token_endpoint": ""} },
	} {
		l := newLab(t)
		change(l)
		l.refused(bySecret, secrets{"S": "hush"}, says, 0)
		l.refused(forPerson, secrets{"S": "hush", "P": l.person(nil)}, says, 0)
	}
}

// A redirect of a request for a token would send the credentials somewhere else.
func TestRequestsForTokensAreNotRedirected(t *testing.T) {
	tooltest.NoLeaks(t)
	l := newLab(t)
	l.handle = func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, l.idp.URL+"/token", http.StatusTemporaryRedirect)
	}
	l.refused(byKey, secrets{"K": l.pem()}, "307", 1)
}

func TestAnswersOfTokenEndpointsAreBounded(t *testing.T) {
	tooltest.NoLeaks(t)
	for says, answer := range map[string]string{
		"cannot be read": `{"access_token":"` + strings.Repeat("a", 2<<20) + `","token_type":"Bearer"}`,
		"gave no token":  `{"access_token":"a","access_token":"b","token_type":"Bearer"}`,
		"no token":       `{"token_type":"Bearer"}`,
	} {
		l := newLab(t)
		l.handle = func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(answer)) }
		l.refused(byKey, secrets{"K": l.pem()}, says, 1)
	}
}

func TestSlowTokenEndpointHoldsNoOneBeyondTheirTime(t *testing.T) {
	tooltest.NoLeaks(t)
	l := newLab(t)
	asked, end := make(chan struct{}), make(chan struct{})
	l.handle = func(http.ResponseWriter, *http.Request) { close(asked); <-end }
	t.Cleanup(func() { close(end) })
	tokens, err := l.open(byKey, secrets{"K": l.pem()})
	kit.OK(t, err)
	first, cancelFirst := context.WithCancel(t.Context())
	done := make(chan error, 2)
	wait := func(ctx context.Context) {
		_, err := tokens.Replace(ctx, oauth.Access{}, refusal(http.StatusUnauthorized, "Bearer"))
		done <- err
	}
	go wait(first)
	<-asked
	second, cancelSecond := context.WithCancel(t.Context())
	go wait(second)
	cancelSecond()
	kit.Equal(t, tool.CodeOf(<-done), tool.CodeCancelled)
	cancelFirst()
	kit.Equal(t, tool.CodeOf(<-done), tool.CodeCancelled)
}

func TestTokenForAnotherServerIsRefused(t *testing.T) {
	tooltest.NoLeaks(t)
	l := newLab(t)
	l.answer = map[string]any{"access_token": l.jwt("at+jwt", map[string]any{"aud": "https://other.example"}, nil)}
	l.refused(byKey, secrets{"K": l.pem()}, "not for the server", 1)
	got, err := l.first(byKey+", audience: 'https://other.example'", secrets{"K": l.pem()})
	kit.OK(t, err)
	kit.Equal(t, got.Token, l.answer["access_token"].(string))
	l.answer = map[string]any{"access_token": l.jwt("at+jwt", map[string]any{"aud": l.server.URL + "/mcp"}, nil)}
	kit.OK(t, kit.Err(l.first(byKey, secrets{"K": l.pem()})))
}

// The token of a workload is for the authorization server that it names, and not for one that a server names.
func TestTokenOfAWorkloadIsOnlySentWhereItIsMeantFor(t *testing.T) {
	tooltest.NoLeaks(t)
	for says, text := range map[string]func(l *lab) string{
		"it is not a JSON Web Token": func(*lab) string { return "canary-of-a-workload" },
		"it has expired":             func(l *lab) string { return l.workload(map[string]any{"exp": in(-time.Second)}) },
		"it has expired ":            func(l *lab) string { return l.workload(map[string]any{"exp": ""}) },
		"it is for https://kubernetes.default.svc": func(l *lab) string {
			return l.workload(map[string]any{"aud": "https://kubernetes.default.svc"})
		},
		"it is for , not for": func(l *lab) string { return l.workload(map[string]any{"aud": ""}) },
	} {
		for _, fields := range []string{byWorkload, forWorkload} {
			l := newLab(t)
			l.refused(fields, secrets{"W": text(l)}, "oauth.assertion was not sent: "+strings.TrimSpace(says), 0)
		}
	}
	l := newLab(t)
	kit.OK(t, kit.Err(l.first(forWorkload, secrets{"W": l.workload(nil)})))
	kit.Equal(t, l.asked[0].Get("grant_type"), "urn:ietf:params:oauth:grant-type:jwt-bearer")
}

func TestPersonIsVouchedFor(t *testing.T) {
	tooltest.NoLeaks(t)
	l := newLab(t)
	kit.OK(t, kit.Err(l.first(forPerson, secrets{"S": "hush", "P": l.person(nil)})))
	kit.Equal(t, len(l.asked), 2)
	idp, issuer := l.asked[0], l.asked[1]
	kit.Equal(t, idp.Get("audience"), l.issuer.URL)
	kit.Equal(t, idp.Get("resource"), l.server.URL+"/mcp")
	kit.Equal(t, idp.Get("client_secret")+idp.Get("client_id"), "desk", "the issuer's secret is not the identity provider's")
	kit.Equal(t, issuer.Get("resource"), l.server.URL+"/mcp")
	kit.Equal(t, issuer.Get("subject_token"), "", "the ID token stays with the identity provider")
}

// Two callers have tokens of their own: each is exchanged for the ID token of that person.
func TestEachPersonIsVouchedFor(t *testing.T) {
	tooltest.NoLeaks(t)
	l := newLab(t)
	for i, name := range []string{"ada", "bob"} {
		person := l.person(map[string]any{"sub": name})
		l.forPerson = func(context.Context) (string, error) { return person, nil }
		kit.OK(t, kit.Err(l.first(forPerson, secrets{"S": "hush", "P": "unused"})))
		kit.Equal(t, l.asked[2*i].Get("subject_token"), person)
	}
	l.forPerson = func(context.Context) (string, error) { return "", errors.New("not connected") }
	l.refused(forPerson, secrets{"S": "hush", "P": "unused"}, "not connected", 4)
}

func TestIDTokenIsOnlySentToItsIssuer(t *testing.T) {
	tooltest.NoLeaks(t)
	for says, claims := range map[string]map[string]any{
		"it is not a token of": {"iss": "https://other.example"}, "for another client than desk": {"aud": "chair"},
		"it has expired": {"exp": in(-time.Second)},
	} {
		l := newLab(t)
		l.refused(forPerson, secrets{"S": "hush", "P": l.person(claims)}, says, 0)
	}
}

// An assertion that is not what was asked for is not sent to the authorization server.
func TestAssertionOfALyingIdentityProviderIsNotSent(t *testing.T) {
	tooltest.NoLeaks(t)
	actor := map[string]any{"sub": "agent", "act": map[string]any{"sub": "gateway"}}
	for says, change := range map[string]func(l *lab){
		"is not an ID-JAG":                    func(l *lab) { l.typ = "JWT" },
		"is of another issuer":                func(l *lab) { l.jag = map[string]any{"iss": l.issuer.URL} },
		"is for another authorization server": func(l *lab) { l.jag = map[string]any{"aud": "https://other.example"} },
		"is for another server":               func(l *lab) { l.jag = map[string]any{"resource": "https://other.example/mcp"} },
		"is for another client":               func(l *lab) { l.jag = map[string]any{"client_id": "them"} },
		"has expired":                         func(l *lab) { l.jag = map[string]any{"exp": in(-time.Second)} },
		"no longer names everyone":            func(l *lab) { l.jag = map[string]any{"act": map[string]any{"sub": "agent"}} },
		"no longer names everyone ":           func(*lab) {},
	} {
		l := newLab(t)
		change(l)
		l.refused(forPerson, secrets{"S": "hush", "P": l.person(map[string]any{"act": actor})}, strings.TrimSpace(says), 1)
	}
	l := newLab(t)
	l.jag = map[string]any{"act": map[string]any{"sub": "toolpost", "act": actor}}
	kit.OK(t, kit.Err(l.first(forPerson, secrets{"S": "hush", "P": l.person(map[string]any{"act": actor})})))
}

func TestBoundTokensAreRequestedWithAProof(t *testing.T) {
	tooltest.NoLeaks(t)
	l := newLab(t)
	l.refused(byKey+", dpop: true", secrets{"K": l.pem()}, `of type "Bearer", not DPoP`, 1)
	l = newLab(t)
	l.answer = map[string]any{"token_type": "DPoP"}
	l.refused(byKey, secrets{"K": l.pem()}, `of type "DPoP", not Bearer`, 1)
	l = newLab(t)
	var proofs []string
	l.handle = func(w http.ResponseWriter, r *http.Request) {
		proofs = append(proofs, r.Header.Get("DPoP"))
		reply(w, 200, map[string]any{"access_token": "bound", "token_type": "dpop"}, nil)
	}
	got, err := l.first(byKey+", dpop: true", secrets{"K": l.pem()})
	kit.OK(t, err)
	kit.Equal(t, got.Key != nil && len(proofs) == 1 && strings.Count(proofs[0], ".") == 2, true)
}

func TestOptionsThatDoNotBelongTogetherAreRefused(t *testing.T) {
	l := newLab(t)
	for fields, says := range map[string]string{
		"key: {secret: K}": "need a grant", "grant: password": "grant",
		"grant: client_credentials, key: {secret: K}": "needs a client_id", "grant: client_credentials, client_id: us": "one of",
		"grant: client_credentials, client_id: us, client_secret: S":                  "issuer",
		byKey + ", client_secret: S, issuer: 'ISSUER'":                                "one of",
		byKey + ", idp: {issuer: x}":                                                  "idp is for",
		"grant: jwt_bearer":                                                           "needs an assertion",
		"grant: jwt_bearer, assertion: {file: a, secret: b}":                          "not both",
		"grant: jwt_bearer, assertion: {file: a, audience: 'api://x'}":                "issuer",
		"grant: jwt_bearer, assertion: {file: a, path: b}":                            "path",
		"grant: id_jag, client_id: us":                                                "needs idp",
		forPerson + ", key: {secret: K}":                                              "not both",
		forPerson + ", assertion: {secret: W}":                                        "idp.subject",
		"grant: jwt_bearer, assertion: {file: a}, client_secret: S, issuer: 'ISSUER'": "client_id",
	} {
		_, err := l.open(fields, nil)
		kit.Fails(t, err, says, fields)
	}
}

func TestKeysOfOtherKindsAreRefusedWithoutShowingThem(t *testing.T) {
	tooltest.NoLeaks(t)
	for _, text := range []string{"canary", "-----BEGIN PRIVATE KEY-----\nY2FuYXJ5\n-----END PRIVATE KEY-----"} {
		l := newLab(t)
		l.refused(byKey, secrets{"K": text}, "oauth.key", 0)
	}
	l := newLab(t)
	l.metadata = map[string]any{"token_endpoint_auth_signing_alg_values_supported": []string{"RS256"}}
	l.refused(byKey, secrets{"K": l.pem()}, "takes signatures of RS256", 0)
}
