package file

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"

	"toolpost/host/process"
	"toolpost/host/workspace"
	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// block is how much of a file is in memory at a time, and in one event. Three divides it, so that the base64 of
// the blocks, put together, is the base64 of the file.
const block = 48 << 10

// streamed is what is told of content that went out as events.
type streamed struct {
	Streamed bool   `json:"streamed"`
	Bytes    int64  `json:"bytes"`
	Encoding string `json:"encoding"`
}

// stream gives content as output events, block by block.
func stream(r *request, f *workspace.File, content io.Reader, encoding string) (json.RawMessage, error) {
	s := streamed{Streamed: true, Encoding: encoding}
	buf := make([]byte, block)
	held := 0 // bytes at the start of buf that begin a character
	for {
		n, err := io.ReadFull(content, buf[held:])
		n += held
		last := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
		if err != nil && !last {
			return nil, err
		}
		s.choose(buf[:n])
		give := n
		if s.Encoding == asText && !last {
			give = process.WholeRunes(buf[:n])
		}
		if err := s.emit(r.out, buf[:give], f.Shown()); err != nil {
			return nil, err
		}
		held = copy(buf, buf[give:n])
		if last {
			return strictjson.Marshal(s)
		}
	}
}

// choose decides, by the first block, what nobody asked for.
func (s *streamed) choose(first []byte) {
	switch {
	case s.Encoding != "":
	case isText(first[:process.WholeRunes(first)]):
		s.Encoding = asText
	default:
		s.Encoding = asBase64
	}
}

func (s *streamed) emit(out tool.Sink, b []byte, shown string) error {
	if len(b) == 0 {
		return nil
	}
	text := string(b)
	if s.Encoding == asBase64 {
		text = base64.StdEncoding.EncodeToString(b)
	} else if !isText(b) {
		return notText(shown)
	}
	s.Bytes += int64(len(b))
	return out.Emit(tool.NewEvent(tool.KindOutput, tool.Output{Stream: "content", Text: text}))
}
