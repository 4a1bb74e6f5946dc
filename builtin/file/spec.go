package file

import (
	"bytes"
	"cmp"
	_ "embed"

	"toolpost/builtin/define"
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

// The tiers of tools that write, and of the one that deletes. Replacing a file destroys its content, but that is what
// writing means: people expect to be asked before a file is gone.
const (
	tierWrite  = 1
	tierDelete = 3
)

// readOutput is the schema of readFile's result. It has one of three forms, which a struct cannot express.
//
//go:embed readoutput.json
var readOutput []byte

func (t *Tools) reading() []define.Tool {
	reads := tool.Effects{Reads: true, Idempotent: true}
	return []define.Tool{
		over(t, tool.Spec{
			Name: readName, Title: "Read a file", Aliases: []string{"file.read"}, Effects: reads,
			Description: "Reads one file and returns its content: a string if it is UTF-8 text, otherwise an object with " +
				"the content in base64. Give a range of bytes or of lines to read a part of a large file. Files that hold " +
				"secrets, such as .env or private keys, and paths outside the offered folders are refused. Use listFiles to " +
				"list the files.",
			Output: bytes.TrimSpace(readOutput),
		}, t.read, func(a readArgs) tool.Touches { return tool.Touches{Reads: []string{a.Path}} }),
		over(t, tool.Spec{
			Name: listName, Title: "List files", Aliases: []string{"file.list"}, Effects: reads,
			Description: "Lists the entries of a folder with path, size in bytes and type, sorted by path; with recursive, " +
				"also everything below it. Symbolic links are listed but not followed. Files that hold secrets, such as .env " +
				"or private keys, are left out. Give a pattern to narrow a large folder.",
		}, t.list, func(a listArgs) tool.Touches { return tool.Touches{Reads: []string{cmp.Or(a.Path, ".")}} }),
		over(t, tool.Spec{
			Name: globName, Title: "Find files by name", Aliases: []string{"file.glob"}, Effects: reads,
			Description: "Lists the paths of all files below a folder that match a glob, sorted. Files that .gitignore " +
				"or .ignore name, and names that begin with a dot, are left out unless ignored or hidden is set.",
		}, t.glob, func(a globArgs) tool.Touches { return tool.Touches{Reads: []string{cmp.Or(a.Path, ".")}} }),
		over(t, tool.Spec{
			Name: statName, Title: "Describe a file", Aliases: []string{"file.stat"}, Effects: reads,
			Description: "Describes a file, a folder or a link: type, size, permissions and time of the last change. " +
				"It describes a link itself, not the link's target.",
		}, t.stat, func(a fileArgs) tool.Touches { return tool.Touches{Reads: []string{a.Path}} }),
	}
}

func (t *Tools) writing() []define.Tool {
	destroys := tool.Effects{Writes: true, Destructive: true}
	return []define.Tool{
		over(t, tool.Spec{
			Name: writeName, Title: "Write a file", Aliases: []string{"file.write"}, Effects: destroys, Tier: tierWrite,
			Description: "Creates a file or replaces its whole content, in one step: other programs never see half of it. Missing folders " +
				"are made. The permissions of a file that is replaced stay. Use editFile to change a part.",
		}, t.write, func(a writeArgs) tool.Touches { return tool.Touches{Writes: []string{a.Path}} }),
		over(t, tool.Spec{
			Name: editName, Title: "Edit a file", Aliases: []string{"file.edit"},
			Effects: tool.Effects{Reads: true, Writes: true}, Tier: tierWrite,
			Description: "Replaces an exact piece of text in a file with another. The old text must occur exactly once, unless " +
				"replace_all or expected says otherwise; if not, nothing is changed, and the error says how often it occurs.",
		}, t.edit, func(a editArgs) tool.Touches { return tool.Touches{Reads: []string{a.Path}, Writes: []string{a.Path}} }),
		over(t, tool.Spec{
			Name: deleteName, Title: "Delete a file", Aliases: []string{"file.delete"}, Effects: destroys, Tier: tierDelete,
			Description: "Deletes a file, a symbolic link (not its target), or an empty folder. This cannot be undone.",
		}, t.remove, func(a fileArgs) tool.Touches { return tool.Touches{Writes: []string{a.Path}} }),
		over(t, tool.Spec{
			Name: moveName, Title: "Move or rename a file", Aliases: []string{"file.move"}, Effects: destroys, Tier: tierWrite,
			Description: "Moves a file or a folder to another path. Missing folders are made. " +
				"A file at the new path is replaced only with overwrite.",
		}, t.move, func(a moveArgs) tool.Touches {
			return tool.Touches{Reads: []string{a.From}, Writes: []string{a.From, a.To}} // under its new name it can be read
		}),
		over(t, tool.Spec{
			Name: folderName, Title: "Make a folder", Aliases: []string{"file.mkdir"},
			Effects: tool.Effects{Writes: true, Idempotent: true}, Tier: tierWrite,
			Description: "Creates a folder, and missing folders above it. If the folder exists already, nothing changes.",
		}, t.makeFolder, func(a folderArgs) tool.Touches { return tool.Touches{Writes: []string{a.Path}} }),
	}
}
