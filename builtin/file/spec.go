package file

import (
	"encoding/json"

	"toolpost/tool"
)

// The names of the tools.
const (
	readName   = "readFile"
	writeName  = "writeFile"
	editName   = "editFile"
	deleteName = "deleteFile"
	moveName   = "moveFile"
	listName   = "listFiles"
	globName   = "globFiles"
	statName   = "statFile"
	folderName = "makeFolder"
)

// tierWrite is the tier of tools that write: it is the first that can do harm.
const tierWrite = 1

func readEffects() tool.Effects { return tool.Effects{Reads: true, Idempotent: true} }

const pathOfAFile = `{"type": "string", "minLength": 1, "description": "The file, relative to an offered folder, or absolute below one. Example: docs/plan.md"}`

func readSpec() *tool.Spec {
	return &tool.Spec{
		Name:  readName,
		Title: "Read a file",
		Description: "Reads one file and gives its content: a string when it is UTF-8 text, otherwise an object with " +
			"the content in base64. Give a range of bytes or of lines to read a part of a large file. Files that hold secrets, " +
			"such as .env or private keys, and paths outside the offered folders are refused. Use listFiles to see which files there are.",
		Aliases: []string{"file.read"},
		Input: json.RawMessage(`{
  "type": "object",
  "properties": {
    "path": ` + pathOfAFile + `,
    "offset": {"type": "integer", "minimum": 0, "description": "The first byte to read, counted from 0."},
    "length": {"type": "integer", "minimum": 0, "description": "How many bytes to read, at most."},
    "from_line": {"type": "integer", "minimum": 1, "description": "The first line to read, counted from 1."},
    "to_line": {"type": "integer", "minimum": 1, "description": "The last line to read."},
    "encoding": {"enum": ["text", "base64"], "description": "How the content is given. Left out: text as a string, everything else in base64."},
    "stream": {"type": "boolean", "description": "Give the content as output events while it is read, and only its size as the result: for files over the size limit."}
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
    },
    {
      "type": "object",
      "properties": {"streamed": {"const": true}, "bytes": {"type": "integer", "minimum": 0}, "encoding": {"enum": ["text", "base64"]}},
      "required": ["streamed", "bytes", "encoding"],
      "additionalProperties": false
    }
  ]
}`),
		Effects: readEffects(),
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
    "pattern": {"type": "string", "minLength": 1, "maxLength": 256, "description": "A glob. Without a slash it is matched against the name, such as *.go; with a slash against the path below the folder, such as src/**/*.{ts,tsx}."},
    "ignore": {"type": "boolean", "default": false, "description": "Leave out what .gitignore and .ignore files name, and .git."}
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
		Effects: readEffects(),
	}
}

func globSpec() *tool.Spec {
	return &tool.Spec{
		Name:  globName,
		Title: "Find files by name",
		Description: "Gives the paths of all files below a folder that match a glob, sorted. What .gitignore and .ignore files " +
			"name is left out, and so are names that begin with a dot, unless they are asked for.",
		Aliases: []string{"file.glob"},
		Input: json.RawMessage(`{
  "type": "object",
  "properties": {
    "pattern": {"type": "string", "minLength": 1, "maxLength": 256, "description": "Without a slash it is matched against the name, such as *.go; with a slash against the path below the folder, such as src/**/*.{ts,tsx}. With ! in front: everything else."},
    "path": {"type": "string", "minLength": 1, "description": "The folder to look in. Left out: the first offered folder."},
    "ignored": {"type": "boolean", "default": false, "description": "Also what ignore files name."},
    "hidden": {"type": "boolean", "default": false, "description": "Also names that begin with a dot."}
  },
  "required": ["pattern"],
  "additionalProperties": false
}`),
		Output:  json.RawMessage(`{"type": "array", "items": {"type": "string"}}`),
		Effects: readEffects(),
	}
}

func statSpec() *tool.Spec {
	return &tool.Spec{
		Name:        statName,
		Title:       "Describe a file",
		Description: "Tells type, size, permissions and time of the last change of a file, a folder or a link. A link is described itself, not what it leads to.",
		Aliases:     []string{"file.stat"},
		Input:       pathInput(pathOfAFile),
		Output: json.RawMessage(`{
  "type": "object",
  "properties": {
    "path": {"type": "string"},
    "type": {"enum": ["file", "directory", "symlink", "other"]},
    "size": {"type": "integer", "minimum": 0},
    "mode": {"type": "string", "description": "The permissions, such as 644."},
    "modified": {"type": "string", "format": "date-time"}
  },
  "required": ["path", "type", "size", "mode", "modified"]
}`),
		Effects: readEffects(),
	}
}

func pathInput(path string) json.RawMessage {
	return json.RawMessage(`{"type": "object", "properties": {"path": ` + path + `}, "required": ["path"], "additionalProperties": false}`)
}

func writeSpec() *tool.Spec {
	return &tool.Spec{
		Name:  writeName,
		Title: "Write a file",
		Description: "Makes a file or replaces its whole content, at once: nobody ever sees half of it. Missing folders are made. " +
			"The permissions of a file that is replaced stay. Use editFile to change a part.",
		Aliases: []string{"file.write"},
		Input: json.RawMessage(`{
  "type": "object",
  "properties": {
    "path": ` + pathOfAFile + `,
    "content": {"type": "string", "description": "The new content."},
    "encoding": {"enum": ["text", "base64"], "default": "text", "description": "What content is written in."},
    "create_only": {"type": "boolean", "default": false, "description": "Fail where the file exists."},
    "append": {"type": "boolean", "default": false, "description": "Add the content to the end of the file instead."},
    "mode": {"type": "string", "pattern": "^[0-7]{3,4}$", "description": "The permissions, such as 755. Left out: those of the file that is replaced, or the usual ones."}
  },
  "required": ["path", "content"],
  "additionalProperties": false
}`),
		Output:  json.RawMessage(`{"type": "object", "properties": {"bytes_written": {"type": "integer", "minimum": 0}}, "required": ["bytes_written"]}`),
		Effects: tool.Effects{Writes: true, Destructive: true},
		Tier:    tierWrite,
	}
}

func editSpec() *tool.Spec {
	return &tool.Spec{
		Name:  editName,
		Title: "Edit a file",
		Description: "Replaces a piece of text in a file by another, exactly. The old text must be there once, unless replace_all " +
			"or expected says otherwise; else nothing is changed and the error says how often it is there.",
		Aliases: []string{"file.edit"},
		Input: json.RawMessage(`{
  "type": "object",
  "properties": {
    "path": ` + pathOfAFile + `,
    "old": {"type": "string", "minLength": 1, "description": "The text to replace, exactly as it is in the file, with its spaces and line ends."},
    "new": {"type": "string", "description": "What takes its place."},
    "replace_all": {"type": "boolean", "default": false, "description": "Replace it wherever it is."},
    "expected": {"type": "integer", "minimum": 1, "description": "Replace it wherever it is, if it is there exactly this often."}
  },
  "required": ["path", "old", "new"],
  "additionalProperties": false
}`),
		Output: json.RawMessage(`{
  "type": "object",
  "properties": {"replacements": {"type": "integer", "minimum": 1}, "bytes_written": {"type": "integer", "minimum": 0}},
  "required": ["replacements", "bytes_written"]
}`),
		Effects: tool.Effects{Reads: true, Writes: true},
		Tier:    tierWrite,
	}
}

func deleteSpec() *tool.Spec {
	return &tool.Spec{
		Name:        deleteName,
		Title:       "Delete a file",
		Description: "Deletes a file, a symbolic link (not what it leads to), or an empty folder. It cannot be undone.",
		Aliases:     []string{"file.delete"},
		Input:       pathInput(pathOfAFile),
		Output:      json.RawMessage(`{"type": "object", "properties": {"deleted": {"const": true}}, "required": ["deleted"]}`),
		Effects:     tool.Effects{Writes: true, Destructive: true},
		Tier:        tierWrite,
	}
}

func moveSpec() *tool.Spec {
	return &tool.Spec{
		Name:        moveName,
		Title:       "Move or rename a file",
		Description: "Moves a file or a folder to another path. Missing folders are made. What is at the new path is replaced only with overwrite.",
		Aliases:     []string{"file.move"},
		Input: json.RawMessage(`{
  "type": "object",
  "properties": {
    "from": ` + pathOfAFile + `,
    "to": {"type": "string", "minLength": 1, "description": "Its new path, in full."},
    "overwrite": {"type": "boolean", "default": false, "description": "Replace a file that is there."}
  },
  "required": ["from", "to"],
  "additionalProperties": false
}`),
		Output:  json.RawMessage(`{"type": "object", "properties": {"moved": {"const": true}}, "required": ["moved"]}`),
		Effects: tool.Effects{Writes: true, Destructive: true},
		Tier:    tierWrite,
	}
}

func folderSpec() *tool.Spec {
	return &tool.Spec{
		Name:        folderName,
		Title:       "Make a folder",
		Description: "Makes a folder, and those above it that are missing. A folder that exists is fine.",
		Aliases:     []string{"file.mkdir"},
		Input:       pathInput(`{"type": "string", "minLength": 1, "description": "The folder, relative to an offered folder, or absolute below one."}`),
		Output:      json.RawMessage(`{"type": "object", "properties": {"created": {"type": "boolean", "description": "false: it existed"}}, "required": ["created"]}`),
		Effects:     tool.Effects{Writes: true, Idempotent: true},
		Tier:        tierWrite,
	}
}
