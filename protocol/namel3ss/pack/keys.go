package pack

import (
	"crypto/ed25519"
	"errors"
	"os"

	"toolpost/tool"
)

// Packs are the operations on packs of namel3ss tools. Keys are files.
type Packs struct{}

// Keygen makes a key pair: the private half in path, readable only for its owner, and the public half in path.pub. It
// overwrites no file.
func (Packs) Keygen(path string) error {
	private, public, err := generateKey()
	if err != nil {
		return err
	}
	if err := writeNew(path, private, 0o600); err != nil {
		return err
	}
	return writeNew(path+".pub", public, 0o644)
}

func writeNew(path string, content []byte, mode os.FileMode) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return tool.Errorf(tool.CodeConflict, "the key is not written: %w", err)
	}
	_, err = f.Write(content)
	if err = errors.Join(err, f.Close()); err != nil {
		return tool.Errorf(tool.CodeInternal, "the key is not written: %w", err)
	}
	return nil
}

// Sign signs every file of a pack.
func (Packs) Sign(dir, keyFile string) (*Signature, error) {
	text, err := readKey(keyFile)
	if err != nil {
		return nil, err
	}
	key, err := parsePrivateKey(text)
	if err != nil {
		return nil, err
	}
	return sign(dir, key)
}

// Verify reports whether one of the keys signed the pack in its present form.
func (Packs) Verify(dir string, keyFiles []string) (*Signature, error) {
	keys, err := publicKeys(keyFiles)
	if err != nil {
		return nil, err
	}
	return verify(dir, keys)
}

// Install copies a pack into an app after verifying it.
func (Packs) Install(src, app string, keyFiles []string, unsigned, replace bool) (*Installed, error) {
	keys, err := publicKeys(keyFiles)
	if err != nil {
		return nil, err
	}
	return install(src, app, keys, unsigned, replace)
}

func publicKeys(files []string) ([]ed25519.PublicKey, error) {
	var keys []ed25519.PublicKey
	for _, file := range files {
		text, err := readKey(file)
		if err != nil {
			return nil, err
		}
		key, err := parsePublicKey(text)
		if err != nil {
			return nil, tool.Errorf(tool.CodeOf(err), "%s: %w", file, err)
		}
		keys = append(keys, key)
	}
	return keys, nil
}

func readKey(file string) ([]byte, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, tool.Errorf(tool.CodeNotFound, "the key cannot be read: %w", err)
	}
	return text, nil
}
