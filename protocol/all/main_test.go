package all_test

import (
	"encoding/pem"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"toolpost/host/sandbox"
)

// TestMain makes the certificate of the servers of package httptest the only one that this machine trusts.
func TestMain(m *testing.M) {
	if sandbox.Main() {
		return
	}
	os.Exit(trusting(m.Run))
}

func trusting(run func() int) int {
	dir, err := os.MkdirTemp("", "roots-*")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	s := httptest.NewTLSServer(nil)
	defer s.Close()
	roots := filepath.Join(dir, "roots.pem")
	if err := os.WriteFile(roots, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}), 0o600); err != nil {
		panic(err)
	}
	os.Setenv("SSL_CERT_FILE", roots)
	return run()
}
