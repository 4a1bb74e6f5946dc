package forks

import (
	"os"
	"slices"

	"toolpost/host/sandbox"
	"toolpost/host/secret"
	"toolpost/tool"
)

// ServerProfile returns the profile of the server of children with this profile: it forks.
func ServerProfile(child sandbox.Profile) sandbox.Profile {
	child.Subprocess, child.Forks = true, true
	return child
}

// Script returns the script that confines a child. The server's own walls hold for its children too, and its network
// filter also reports attempts: so the child's own filter leaves connections to it.
func Script(child sandbox.Profile) ([]byte, error) {
	if child.Network == sandbox.NetworkNone {
		left := child
		left.Network = sandbox.NetworkLoopback
		if script, err := sandbox.ForkScript(ServerProfile(left), left); err == nil {
			return script, nil
		}
	}
	return sandbox.ForkScript(ServerProfile(child), child)
}

// Room returns the file from which a server learns how to confine its children: code, a NUL, and the script for it. It is
// written anew for each server, since it names files as they are now.
func Room(script []byte) (*os.File, error) {
	return Sealed(slices.Concat([]byte(sandbox.ForkPython()), []byte{0}, script))
}

// Sealed puts content for the Python side into immutable memory, so that no file of ours has to be on the disk, or can be
// tampered with there.
func Sealed(content []byte) (*os.File, error) {
	f, err := secret.Sealed("python", string(content))
	if err != nil {
		return nil, tool.Errorf(tool.CodeUnavailable, "no memory file for the Python side: %w", err)
	}
	return f, nil
}
