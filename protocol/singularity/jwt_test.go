package singularity

import (
	"testing"

	"toolpost/internal/kit"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nkeys"
)

// jwtServer returns the options of a server that trusts the operator, and the user's JWT.
func jwtServer(t *testing.T, operator, account, user nkeys.KeyPair) (server.Options, string) {
	t.Helper()
	public := func(k nkeys.KeyPair) string {
		return kit.Must(k.PublicKey())(t)
	}
	encode := func(c jwt.Claims, by nkeys.KeyPair) string {
		return kit.Must(c.Encode(by))(t)
	}
	op := jwt.NewOperatorClaims(public(operator))
	op.Encode(operator) // fills in the issuer
	resolver := &server.MemAccResolver{}
	kit.OK(t, resolver.Store(public(account), encode(jwt.NewAccountClaims(public(account)), operator)))
	return server.Options{TrustedOperators: []*jwt.OperatorClaims{op}, AccountResolver: resolver},
		encode(jwt.NewUserClaims(public(user)), account)
}

func credsFile(userJWT string, seed []byte) []byte {
	text, err := jwt.FormatUserConfig(userJWT, seed)
	if err != nil {
		panic(err)
	}
	return text
}
