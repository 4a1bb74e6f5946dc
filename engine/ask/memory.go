package ask

import (
	"context"
	"sync"
	"time"

	"toolpost/tool"
)

// maxMarks is how many answered questions are remembered without a store.
const maxMarks = 100_000

// A memory is Marks for one process.
type memory struct {
	mu       sync.Mutex
	answered map[[32]byte]mark
}

type mark struct {
	who   [32]byte
	until time.Time
}

// NewMemory returns Marks that last as long as this process.
func NewMemory() Marks { return &memory{answered: map[[32]byte]mark{}} }

// Mark implements Marks. When the memory is full it takes no more marks: to forget one would let its question be
// answered again.
func (m *memory) Mark(_ context.Context, question, who [32]byte, ttl time.Duration) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	if was, ok := m.answered[question]; ok {
		return was.who == who, nil
	}
	if len(m.answered) >= maxMarks {
		for id, was := range m.answered {
			if now.After(was.until) {
				delete(m.answered, id)
			}
		}
	}
	if len(m.answered) >= maxMarks {
		return false, tool.Errorf(tool.CodeQuotaExceeded,
			"too many questions were answered lately to remember one more; answer it later, or give the config a store")
	}
	m.answered[question] = mark{who, now.Add(ttl)}
	return true, nil
}
