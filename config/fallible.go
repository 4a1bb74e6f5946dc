package config

import (
	"reflect"

	"github.com/goccy/go-yaml/ast"
)

// A Fallible is a part of a file whose mistakes are its own: they do not keep the rest of the file from being read.
type Fallible[T any] struct {
	Value T
	Err   error // what is wrong with it; Explain says where
}

// UnmarshalYAML implements yaml.NodeUnmarshaler.
func (p *Fallible[T]) UnmarshalYAML(n ast.Node) error {
	p.Err = decode(n, reflect.ValueOf(&p.Value).Elem())
	return nil
}

// Explain returns the error of a part of a file as DecodeYAML would: with its place.
func Explain(path string, data []byte, err error) error {
	return (&document{path: path, data: data}).explain(err)
}

// PeekYAML reads those fields of a file that the struct has, and leaves all others alone: it is for files in which
// something is wrong.
func PeekYAML(path string, data []byte, into any) error {
	d, err := parse(path, data)
	if err != nil {
		return err
	}
	return d.explain(decodeSome(d.root, into))
}
