//go:build linux

package sandbox

import (
	"encoding/binary"
	"fmt"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"

	"toolpost/tool"
)

// A script is the list of system calls that a forked child makes on its way into its room, and the bytes that their
// arguments point to. It is written here, with all of Go available, and played there by a loop that neither allocates nor
// decides (play). So every wall is data that a test can read.
type script struct {
	ops    []op
	data   []byte
	relocs []uint64 // offsets in data of pointers into data
	names  []string // of the ops: what each was for, as "layer: thing"
	layer  string
	regs   register // number of registers in use, from regFiles on
}

// An op is one system call. Its layout is known to play and to confine.py.
type op struct {
	nr   uint64
	args [6]uint64
	mode uint64 // bit i: argument i is a place in data; bit 8+i: it is a register; and the bits below
	dst  uint64 // the register that takes the result; 0 if none
	jump uint64 // the op to continue with if the result is 0 (a forked child); 0 if none
}

// The kinds of an argument, as bits for the first, and the flag that ignores an error.
const (
	modePlace    = 1
	modeRegister = 1 << 8
	modeLoose    = 1 << 16
)

// Operations that are not system calls; play performs them itself.
const (
	opPoke  = 1<<32 + iota // store args[1] at args[0], 8 bytes
	opPeek                 // the result is the 4 bytes at args[0]
	opTell                 // send the record {args[0], args[1], args[2]} to the process that waits for this child
	opChain                // continue with the script at args[0], with the args[2] descriptors stored at args[1]
)

// The registers that are set before the first op.
const (
	regStatus = register(1) // the socket to the waiting process
	regLife   = register(2) // the pipe that ends with the host
	regRules  = register(3) // Landlock's ruleset, which one script begins and the next one continues
	regTitle  = register(4) // what ps shows of the process
	regFiles  = register(5) // the first of the descriptors that came with the script
	maxRegs   = 512
)

// The kinds of records, in their first word.
const (
	tellMidwife  = iota + 1 // a pid
	tellInit                // a pid
	tellTool                // a pid
	tellReady               // the room is waiting for the next script
	tellFailure             // the op that failed, the errno
	tellListener            // the record comes with the descriptor of the seccomp listener
	tellEgress              // the record comes with a socket that listens in the room
	tellRoot                // the record comes with the root of the room
)

// A register holds a result, and a place is an offset in data; both can be arguments of an op.
type (
	register uint64
	place    uint64
)

const cwd = unix.AT_FDCWD

// in names the layer that the following ops build.
func (s *script) in(layer string) { s.layer = layer }

// call adds a system call that must succeed; what names its object, for the error. The arguments are numbers, registers,
// places, or values that value puts into data. Any other type is a bug, and panics.
func (s *script) call(what string, nr uintptr, args ...any) *op {
	return s.add(what, uint64(nr), args...)
}

func (s *script) add(what string, nr uint64, args ...any) *op {
	o := op{nr: nr}
	for i, a := range args {
		var mode uint64
		o.args[i], mode = s.value(a)
		o.mode |= mode << i
	}
	s.ops = append(s.ops, o)
	s.names = append(s.names, s.layer+": "+what)
	return &s.ops[len(s.ops)-1]
}

// value returns an argument as a word, and its mode. Texts, bytes, and lists of texts for execve are put into data.
func (s *script) value(argument any) (v, mode uint64) {
	switch a := argument.(type) {
	case int:
		return uint64(a), 0
	case uint64:
		return a, 0
	case register:
		return uint64(a), modeRegister
	case place:
		return uint64(a), modePlace
	case string:
		return uint64(s.bytes(append([]byte(a), 0))), modePlace
	case []byte:
		return uint64(s.bytes(a)), modePlace
	case []string:
		list := make([]any, len(a)+1)
		for i, text := range a {
			list[i] = text
		}
		list[len(a)] = 0
		return uint64(s.words(list...)), modePlace
	}
	panic(fmt.Sprintf("sandbox: %T is no argument of a system call", argument))
}

// loose ignores an error of the op.
func (o *op) loose() { o.mode |= modeLoose }

// into stores the result in a register.
func (o *op) into(r register) *op { o.dst = uint64(r); return o }

// newReg allocates a register.
func (s *script) newReg() register {
	s.regs++
	return regFiles + s.regs - 1
}

// fits returns an error if the script needs more registers than there are. Such a script must not be played.
func (s *script) fits() error {
	if regFiles+s.regs > maxRegs {
		return tool.Errorf(tool.CodeInvalidInput,
			"a confined child's profile has too many paths and descriptors: name folders instead of what is in them")
	}
	return nil
}

// here returns the index of the next op.
func (s *script) here() uint64 { return uint64(len(s.ops)) }

// bytes puts bytes into data, aligned for any structure, with space behind them for a poke.
func (s *script) bytes(b []byte) place {
	for len(s.data)%8 != 0 {
		s.data = append(s.data, 0)
	}
	at := len(s.data)
	s.data = append(append(s.data, b...), make([]byte, 8)...)
	return place(at)
}

// words puts a structure of 64-bit fields into data; places among them become pointers.
func (s *script) words(fields ...any) place {
	var b []byte
	var pointers []int
	for i, f := range fields {
		v, mode := s.value(f)
		if b = binary.NativeEndian.AppendUint64(b, v); mode == modePlace {
			pointers = append(pointers, 8*i)
		}
	}
	at := s.bytes(b)
	for _, p := range pointers {
		s.relocs = append(s.relocs, uint64(at)+uint64(p))
	}
	return at
}

// poke stores a register's value in data before the next op.
func (s *script) poke(at place, from register) { s.add("poke", opPoke, at, from) }

// A header is at the beginning of a script's memory. All places are relative to that beginning.
type header struct {
	ops, relocs, nrelocs uint64
	record               [3]uint64 // the next record to send
	regs                 [maxRegs]uint64
}

const (
	headerSize = uint64(unsafe.Sizeof(header{}))
	opSize     = uint64(unsafe.Sizeof(op{}))
	recordSize = int(unsafe.Sizeof(header{}.record))
)

// image returns the script in its memory layout: header, ops, relocations, data. It is made once.
func (s *script) image() []byte {
	relocs := headerSize + opSize*uint64(len(s.ops))
	data := relocs + 8*uint64(len(s.relocs))
	for i := range s.ops {
		for a := range s.ops[i].args {
			if s.ops[i].mode>>a&modePlace != 0 {
				s.ops[i].args[a] += data
			}
		}
	}
	for i, r := range s.relocs {
		field := s.data[r:]
		binary.NativeEndian.PutUint64(field, binary.NativeEndian.Uint64(field)+data)
		s.relocs[i] += data
	}
	head := []header{{ops: headerSize, relocs: relocs, nrelocs: uint64(len(s.relocs))}}
	return slices.Concat(bytesOf(head), bytesOf(s.ops), bytesOf(s.relocs), s.data)
}

// bytesOf returns the memory of a list of numbers, or of structures of numbers.
func bytesOf[T any](list []T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(list))), len(list)*int(unsafe.Sizeof(*new(T))))
}
