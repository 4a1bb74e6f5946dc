package openapi

import (
	"os"
	"path/filepath"
	"testing"

	"toolpost/internal/kit"
	"toolpost/wire/strictjson"
)

func FuzzDocument(f *testing.F) {
	files, err := filepath.Glob("testdata/docs/*.*")
	if err != nil || len(files) == 0 {
		f.Fatal(files, err)
	}
	for _, path := range files {
		data := kit.Must(os.ReadFile(path))(f)
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		d, err := readDocument(data)
		if err != nil {
			return
		}
		list, _ := d.operations(&Options{}, nil)
		for _, op := range list {
			if op.spec.Name == "" {
				t.Error("a tool has no name")
			}
			if op.err == nil && strictjson.CheckObject(op.spec.Input) != nil {
				t.Errorf("%s: its schema is %s", op.spec.Name, op.spec.Input)
			}
		}
	})
}
