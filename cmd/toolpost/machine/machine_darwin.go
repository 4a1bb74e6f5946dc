package machine

import "golang.org/x/sys/unix"

// system reports what macOS cannot do. The findings about walls report what that means for sources.
func system() []Finding {
	var u unix.Utsname
	err := unix.Uname(&u)
	return []Finding{
		Probe("kernel", err, Failed, unix.ByteSliceToString(u.Sysname[:])+" "+unix.ByteSliceToString(u.Release[:]),
			"macOS 11 or later; walls are built on Linux alone"),
		{
			"whole trees", Missing, "macOS does not give the processes of tools back to us",
			"a tool's processes end with it, but for those that leave its session",
		},
		{"memory files", Missing, "macOS has none", "secrets for tools are in temporary files, without a name"},
	}
}
