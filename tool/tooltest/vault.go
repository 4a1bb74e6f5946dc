package tooltest

import "toolpost/tool"

// A Vault holds secrets by name, in place of those that a config names.
type Vault map[string]string

// Secret implements config.Secrets.
func (v Vault) Secret(name string) (string, error) {
	if value, ok := v[name]; ok {
		return value, nil
	}
	return "", tool.Errorf(tool.CodeUnavailable, "there is no secret %s", name)
}
