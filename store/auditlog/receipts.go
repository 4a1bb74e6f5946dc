package auditlog

import (
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"time"

	"toolpost/engine/audit"
	"toolpost/engine/idempotency"
	"toolpost/engine/member"
	"toolpost/store/database"
	"toolpost/tool"
	"toolpost/wire/receipt"
	"toolpost/wire/strictjson"
)

// Members reads the members of the fleet, evicted ones too, in the order in which they joined, with the keys that they have had.
func Members(from database.Querier) (all []member.Member, err error) {
	all, err = database.List(from, func(rows *sql.Rows) (m member.Member, err error) {
		var labels string
		var evicted database.MicroTime
		err = rows.Scan(&m.ID, &m.Name, &m.Role, &labels, &m.Key, &m.Address, (*database.MicroTime)(&m.Joined), &evicted)
		m.Evicted = time.Time(evicted)
		if err != nil {
			return m, err
		}
		return m, strictjson.Unmarshal([]byte(labels), &m.Labels)
	}, `SELECT id, name, role, labels, nkey, address, joined_at, evicted_at FROM fleet_node ORDER BY joined_at`)
	if err != nil {
		return nil, err
	}
	return all, from.Each(func(rows *sql.Rows) error {
		var node string
		var k member.Key
		err := rows.Scan(&node, &k.Public, (*database.MicroTime)(&k.Since))
		if i := slices.IndexFunc(all, func(m member.Member) bool { return m.ID == node }); i >= 0 {
			all[i].Keys = append(all[i].Keys, k)
		}
		return err
	}, `SELECT node, nkey, since_at FROM fleet_key ORDER BY since_at`)
}

func (v *verifier) readMembers() (err error) {
	v.members, err = Members(v.Reader)
	return err
}

// checkReceipt returns what is wrong with the receipt of a row, if it has one.
func (v *verifier) checkReceipt(x *row) error {
	var r tool.Record
	k := v.shared[x.kind]
	if k == nil || !strings.Contains(x.doc, "receipt") && !strings.Contains(x.doc, `\u`) { // its name can be written in many ways
		return nil
	}
	if err := v.inDetail.Unmarshal([]byte(x.doc), &r); err != nil || len(r.Receipt) == 0 {
		return err
	}
	x.signed = true
	s, err := receipt.Read(r.Receipt)
	if err != nil {
		return err
	}
	r.Tool, r.Source, r.Outcome, r.Kind, r.Parent = k.Tool, k.Source, k.Outcome, k.Kind, x.Parent
	if err := s.Check(&r); err != nil {
		return err
	}
	from := x.Time
	if r.Kind == tool.LateOutcome {
		from = from.Add(-idempotency.LostFor) // for so long a node keeps an outcome with its receipt
	}
	if !member.Held(v.members, r.Node, s.Key, from, x.Time.Add(x.Duration)) {
		return fmt.Errorf("its key was not that of %s then", r.Node)
	}
	return nil
}

// countReceipt counts a receipt that was checked. What is wrong with receipts is reported behind all that is wrong with the log: a
// node that sends bad ones must not hide that.
func (v *verifier) countReceipt(x *row) {
	if x.signed {
		v.report.Receipts++
	}
	if x.receipt != nil && len(v.receipts) < maxFindings {
		v.receipts = append(v.receipts, audit.Finding{Seq: x.Seq, What: fmt.Sprintf("the receipt of row %d is wrong: %v", x.Seq, x.receipt)})
	}
}
