package connect

import (
	"toolpost/config"
)

// yamlFormat is YAML, in which each server is a line of a section.
type yamlFormat struct{}

func (yamlFormat) decode(text []byte) (map[string]any, error) { return config.YAMLValue("", text) }

func (f yamlFormat) set(text []byte, key, name string, entry config.Fields) ([]byte, error) {
	doc, err := f.decode(text)
	if err != nil {
		return nil, err
	}
	if entryOf(doc, key, name) != nil {
		if text, err = config.RemoveEntry("the file", text, key, name); err != nil {
			return nil, err
		}
	}
	return config.AddEntry("the file", text, key, name, entry)
}

func (yamlFormat) remove(text []byte, key, name string, _ bool) ([]byte, error) {
	return config.RemoveEntry("the file", text, key, name)
}
