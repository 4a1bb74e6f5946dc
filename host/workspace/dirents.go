package workspace

import (
	"bytes"
	"encoding/binary"
	"io/fs"

	"golang.org/x/sys/unix"
)

// Where the parts of struct linux_dirent64 are.
const (
	direntLength = 16
	direntType   = 18
	direntName   = 19
)

// appendItems adds the names that getdents wrote. The file system says what most of them are; where it does not, we
// ask.
func appendItems(items []item, fd int, buf []byte) []item {
	for len(buf) > direntName {
		length := int(binary.NativeEndian.Uint16(buf[direntLength:]))
		if length <= direntName || length > len(buf) {
			return items
		}
		name := buf[direntName:length]
		if end := bytes.IndexByte(name, 0); end >= 0 {
			name = name[:end]
		}
		if s := string(name); s != "." && s != ".." {
			items = append(items, item{s, itemType(fd, s, buf[direntType])})
		}
		buf = buf[length:]
	}
	return items
}

func itemType(fd int, name string, kind byte) fs.FileMode {
	switch kind {
	case unix.DT_REG:
		return 0
	case unix.DT_DIR:
		return fs.ModeDir
	case unix.DT_LNK:
		return fs.ModeSymlink
	case unix.DT_UNKNOWN:
		if st, err := statAt(fd, name); err == nil {
			return typeOf(st.Mode)
		}
	}
	return fs.ModeIrregular
}
