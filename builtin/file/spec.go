package file

import (
	"encoding/json"

	"toolpost/tool"
)

const (
	readName = "readFile"
	listName = "listFiles"
)

func readSpec() *tool.Spec {
	return &tool.Spec{
		Name:  readName,
		Title: "Read a file",
		Description: "Reads one file and gives its whole content: a string when it is UTF-8 text, otherwise an object with " +
			"the content in base64. Files that hold secrets, such as .env or private keys, and paths outside the " +
			"offered folders are refused. Use listFiles to see which files there are.",
		Aliases: []string{"file.read"},
		Input: json.RawMessage(`{
  "type": "object",
  "properties": {
    "path": {"type": "string", "minLength": 1, "description": "The file, relative to an offered folder, or absolute below one. Example: docs/plan.md"}
  },
  "required": ["path"],
  "additionalProperties": false
}`),
		Output: json.RawMessage(`{
  "oneOf": [
    {"type": "string", "description": "The content of a text file."},
    {
      "type": "object",
      "properties": {"encoding": {"const": "base64"}, "content": {"type": "string", "contentEncoding": "base64"}},
      "required": ["encoding", "content"],
      "additionalProperties": false
    }
  ]
}`),
		Effects: tool.Effects{Reads: true, Idempotent: true},
	}
}

func listSpec() *tool.Spec {
	return &tool.Spec{
		Name:  listName,
		Title: "List files",
		Description: "Lists the entries of a folder with path, size in bytes and type, sorted by path; with recursive also " +
			"everything below it. Symbolic links are listed and not followed. Files that hold secrets, such as .env or " +
			"private keys, are left out. Give a pattern to narrow a large folder.",
		Aliases: []string{"file.list"},
		Input: json.RawMessage(`{
  "type": "object",
  "properties": {
    "path": {"type": "string", "minLength": 1, "description": "The folder, relative to an offered folder, or absolute below one. Left out: the first offered folder."},
    "recursive": {"type": "boolean", "default": false, "description": "Also list everything below the folder."},
    "pattern": {"type": "string", "minLength": 1, "maxLength": 256, "description": "A glob. Without a slash it is matched against the name, such as *.go; with a slash against the path below the folder, such as src/**/*.{ts,tsx}."}
  },
  "additionalProperties": false
}`),
		Output: json.RawMessage(`{
  "type": "array",
  "items": {
    "type": "object",
    "properties": {
      "path": {"type": "string", "description": "The folder as it was asked for, a slash, and the entry."},
      "size": {"type": "integer", "minimum": 0, "description": "Bytes of a file; 0 for everything else."},
      "type": {"enum": ["file", "directory", "symlink", "other"]}
    },
    "required": ["path", "size", "type"]
  }
}`),
		Effects: tool.Effects{Reads: true, Idempotent: true},
	}
}
