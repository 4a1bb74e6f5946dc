package walls

import (
	"encoding/pem"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"toolpost/host/sandbox"
)

// TestMain makes the certificate of the servers of package httptest the only one that this machine trusts.
func TestMain(m *testing.M) {
	if sandbox.Main() {
		return
	}
	dir, err := os.MkdirTemp("", "roots-*")
	if err != nil {
		panic(err)
	}
	s := httptest.NewTLSServer(nil)
	roots := filepath.Join(dir, "roots.pem")
	if err := os.WriteFile(roots, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}), 0o600); err != nil {
		panic(err)
	}
	s.Close()
	os.Setenv("SSL_CERT_FILE", roots)
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		os.RemoveAll(dir)
		os.Exit(code)
	}))
}
