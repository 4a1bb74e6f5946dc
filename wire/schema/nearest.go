package schema

// collect finds what is wrong with v for a schema, apart from what was found before.
func (r *run) collect(n *node, v any) []finding {
	was, found := r.quiet, r.found
	r.quiet, r.found = false, nil
	r.check(n, v, nil)
	r.quiet, r.found, found = was, found, r.found
	if len(found) == 0 { // out of work
		found = []finding{{Fault{r.pointer(), noMatch}, len(r.path), ruleNever, n}}
	}
	return found
}

// noteNearest notes why v matches none of the choices: what is wrong by the one that was probably meant, or
// what all of them want where they all want something else altogether.
func (r *run) noteNearest(choices []*node, v any) {
	if r.quiet {
		return
	}
	var best []finding
	every := make([][]finding, len(choices))
	for i, choice := range choices {
		every[i] = r.collect(choice, v)
		if i == 0 || r.distance(every[i]) < r.distance(best) {
			best = every[i]
		}
	}
	if r.noteTogether(every, v) {
		return
	}
	for _, f := range best {
		r.add(f)
	}
}

// distance weighs findings: a value of another type was hardly meant for this choice, nor was an object whose
// "kind" or the like says another name; after that, fewer faults are nearer.
func (r *run) distance(found []finding) int {
	far := len(found)
	for _, f := range found {
		here := f.depth == len(r.path)
		switch f.rule {
		case ruleType, ruleNever:
			if here {
				far += 100 * MaxFaults
			}
		case ruleConst, ruleEnum:
			if here || f.depth == len(r.path)+1 {
				far += 2 * MaxFaults
			}
		}
	}
	return far
}

// noteTogether joins choices that differ only in the type, or only in the values, that they want here.
func (r *run) noteTogether(every [][]finding, v any) bool {
	joined := node{enum: &values{}}
	for _, found := range every {
		f := found[0]
		if len(found) > 1 || f.depth != len(r.path) {
			return false
		}
		switch f.rule {
		case ruleType:
			joined.types |= f.node.types
		case ruleConst:
			joined.enum.listed = append(joined.enum.listed, f.node.constant.listed...)
		case ruleEnum:
			joined.enum.listed = append(joined.enum.listed, f.node.enum.listed...)
		default:
			return false
		}
	}
	switch {
	case len(joined.enum.listed) == 0:
		r.note(ruleType, &joined, joined.typeWords(v))
	case joined.types == 0:
		r.note(ruleEnum, &joined, joined.enumWords())
	default:
		return false
	}
	return true
}
