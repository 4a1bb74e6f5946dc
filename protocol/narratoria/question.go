package narratoria

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"

	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// eventAsk is the ui_event for questions, which is our addition: a message and a JSON Schema of the answers, or several
// needs. The tool ends with done as usual. It is then called again, with the answers in its request and the id of its
// question as resume. The tool chooses the id: it can hold anything that the tool needs again, and only the tool reads it.
const eventAsk = "ask"

// questionOf reads the question in an event, or returns nil if it is not a question.
func questionOf(event string, payload []byte) (*tool.Ask, error) {
	if event != eventAsk {
		return nil, nil
	}
	a, err := readAsk(payload)
	if err != nil {
		return nil, fmt.Errorf("this question cannot be asked: %w", err)
	}
	if a.ID == "" { // the same for the same question
		sum := sha256.Sum256(payload)
		a.ID = hex.EncodeToString(sum[:8])
	}
	return a, nil
}

func readAsk(payload []byte) (*tool.Ask, error) {
	a := &tool.Ask{}
	switch err := strictjson.Unmarshal(payload, a); {
	case strictjson.KindOf(payload) != "object":
		return nil, errors.New("its payload is not an object with a message and a schema, or with needs")
	case err != nil:
		return nil, fmt.Errorf("%.200s", err.Error())
	case a.Message == "" && len(a.Needs) == 0:
		return nil, errors.New("it has neither a message nor needs")
	}
	for i := range a.Needs {
		if a.Needs[i].Kind == "" {
			a.Needs[i].Kind = tool.NeedForm
		}
	}
	return a, nil
}
