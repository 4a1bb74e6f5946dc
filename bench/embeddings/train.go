package main

import (
	"context"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"sync"

	"toolpost/codesearch/meaning"
	"toolpost/codesearch/split"
)

// A recipe holds the parameters of the training. The same values on the same packages result in the same bytes.
type recipe struct {
	dims, batch, epochs int
	run                 int     // samples of one package that stay together in a batch
	scale               float64 // of the cosines: one over the temperature
	rate, weightRate    float64 // Adagrad's steps for vectors and for weights; they fall to a tenth
	seed                uint64
}

func standard() recipe {
	return recipe{dims: 256, batch: 512, epochs: 4, run: 256, scale: 20, rate: 0.1, weightRate: 0.05, seed: 20261115}
}

// A use is a word of an example: a row of the table and its count.
type use struct {
	row   int32
	count float32
}

// A sample is an example as rows.
type sample struct {
	language split.Language
	pkg      int
	sentence uint64
	uses     [2][]use // of its query, and of its code
}

// A side is one half of a batch: queries or functions, as vectors.
type side struct {
	weights []float32   // of every row, as logarithms: the weight of a word on this side
	squares []float32   // their past gradients
	uses    [][]use     // of each sample of the batch
	vec     [][]float32 // normalised sums
	norm    []float32
	grad    [][]float32 // with respect to vec, then to the sums
	slopes  [][]float32 // with respect to the weight of each use
}

// A trainer learns by contrast: the function that a sentence describes must be nearer to it than the other functions of
// the batch. Each phase is divided so that no two cores write the same number and each sum has a fixed order, regardless
// of the number of cores.
type trainer struct {
	recipe
	cores   int
	vectors []float32 // rows * dims
	squares []float32
	sides   [2]side // queries, and code
	logits  [][]float32
	teller
}

func newTrainer(r recipe, words int, cores int, told teller) *trainer {
	t := &trainer{
		recipe: r, cores: cores, teller: told, vectors: make([]float32, words*r.dims),
		squares: make([]float32, words*r.dims),
	}
	rng := rand.New(rand.NewPCG(r.seed, 1))
	for i := range t.vectors {
		t.vectors[i] = float32(rng.NormFloat64() / math.Sqrt(float64(r.dims)))
	}
	for i := range t.sides {
		t.sides[i] = side{
			weights: make([]float32, words), squares: make([]float32, words), vec: matrix(r.batch, r.dims),
			grad: matrix(r.batch, r.dims), norm: make([]float32, r.batch), slopes: make([][]float32, r.batch),
		}
	}
	t.logits = matrix(r.batch, r.batch)
	return t
}

func matrix(n, m int) [][]float32 {
	return slices.Collect(slices.Chunk(make([]float32, n*m), m))
}

// weigh sets the initial weights of words: a frequent word says less.
func (t *trainer) weigh(samples []sample) {
	for i, side := range t.sides {
		seen := make([]float64, len(side.weights))
		for _, x := range samples {
			for _, u := range x.uses[i] {
				seen[u.row]++
			}
		}
		for row, n := range seen {
			idf := math.Log(1 + float64(len(samples))/(1+n))
			side.weights[row] = float32(math.Log(idf / 6))
		}
	}
}

// train runs over the samples for the number of epochs in the recipe.
func (t *trainer) train(ctx context.Context, samples []sample) error {
	t.weigh(samples)
	step, told, end := 0, func() {}, func() {}
	defer func() { end() }()
	for epoch := range t.epochs {
		batches := t.batches(samples, epoch) // the same number in every epoch
		if epoch == 0 {
			told, end = t.steps("training", len(batches)*t.epochs)
		}
		loss := 0.0
		for _, b := range batches {
			if err := ctx.Err(); err != nil {
				return err
			}
			pace := 1 - 0.9*float64(step)/float64(len(batches)*t.epochs)
			loss += t.step(samples, b, pace)
			step++
			told()
		}
		t.log("epoch %d of %d: loss %.4f", epoch+1, t.epochs, loss/float64(max(1, len(batches))))
	}
	return nil
}

// batches groups samples of one language, in runs of one package: neighbours are hard to tell apart, and that is the task
// of a search.
func (t *trainer) batches(samples []sample, epoch int) [][]int {
	rng := rand.New(rand.NewPCG(t.seed, uint64(epoch)+2))
	groups := map[split.Language]map[int][]int{}
	for i, s := range samples {
		if groups[s.language] == nil {
			groups[s.language] = map[int][]int{}
		}
		groups[s.language][s.pkg] = append(groups[s.language][s.pkg], i)
	}
	var all [][]int
	for _, l := range slices.Sorted(maps.Keys(groups)) {
		var runs [][]int
		for _, p := range slices.Sorted(maps.Keys(groups[l])) {
			members := groups[l][p]
			rng.Shuffle(len(members), func(i, j int) { members[i], members[j] = members[j], members[i] })
			runs = append(runs, slices.Collect(slices.Chunk(members, t.run))...)
		}
		rng.Shuffle(len(runs), func(i, j int) { runs[i], runs[j] = runs[j], runs[i] })
		for b := range slices.Chunk(slices.Concat(runs...), t.batch) {
			if len(b) == t.batch {
				all = append(all, b)
			}
		}
	}
	rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all
}

// step learns from one batch and returns its loss.
func (t *trainer) step(samples []sample, batch []int, pace float64) float64 {
	query, code := &t.sides[0], &t.sides[1]
	query.uses, code.uses = query.uses[:0], code.uses[:0]
	for _, i := range batch {
		query.uses = append(query.uses, samples[i].uses[0])
		code.uses = append(code.uses, samples[i].uses[1])
	}
	t.each(len(batch), func(i int) {
		t.embed(query, i)
		t.embed(code, i)
	})
	t.each(len(batch), func(i int) {
		for j := range batch {
			t.logits[i][j] = float32(t.scale) * dot(query.vec[i], code.vec[j])
			if i != j && samples[batch[i]].sentence == samples[batch[j]].sentence {
				t.logits[i][j] = float32(math.Inf(-1))
			}
		}
	})
	loss := t.contrast(len(batch))
	t.each(len(batch), func(i int) {
		clear(query.grad[i])
		clear(code.grad[i])
		for j := range batch {
			axpy(query.grad[i], t.logits[i][j], code.vec[j])
			axpy(code.grad[i], t.logits[j][i], query.vec[j])
		}
		t.back(query, i)
		t.back(code, i)
	})
	t.update(pace)
	return loss
}

// each runs f for every number below n, divided evenly over the cores.
func (t *trainer) each(n int, f func(i int)) {
	var wg sync.WaitGroup
	for c := range t.cores {
		wg.Go(func() {
			for i := c * n / t.cores; i < (c+1)*n/t.cores; i++ {
				f(i)
			}
		})
	}
	wg.Wait()
}

// embed sums the vectors of a sample's words and normalises the sum.
func (t *trainer) embed(s *side, i int) {
	v := s.vec[i]
	clear(v)
	for _, u := range s.uses[i] {
		axpy(v, u.count*exp(s.weights[u.row]), t.row(u.row))
	}
	s.norm[i] = float32(math.Sqrt(float64(dot(v, v)))) + 1e-6
	for d := range v {
		v[d] /= s.norm[i]
	}
}

func (t *trainer) row(n int32) []float32 { return t.vectors[int(n)*t.dims : (int(n)+1)*t.dims] }

// contrast turns the logits into their gradients, over rows and over columns, and returns the loss.
func (t *trainer) contrast(n int) float64 {
	rowTop, rowSum := make([]float64, n), make([]float64, n)
	colTop, colSum := make([]float64, n), make([]float64, n)
	t.each(n, func(i int) {
		rowTop[i], rowSum[i] = softmax(n, func(j int) float64 { return float64(t.logits[i][j]) })
		colTop[i], colSum[i] = softmax(n, func(j int) float64 { return float64(t.logits[j][i]) })
	})
	losses := make([]float64, n)
	t.each(n, func(i int) {
		own := float64(t.logits[i][i])
		losses[i] = (rowTop[i]+math.Log(rowSum[i])-own)/2 + (colTop[i]+math.Log(colSum[i])-own)/2
		for j := range n {
			x := float64(t.logits[i][j])
			g := math.Exp(x-rowTop[i])/rowSum[i] + math.Exp(x-colTop[j])/colSum[j]
			if i == j {
				g -= 2
			}
			t.logits[i][j] = float32(g * t.scale / (2 * float64(n)))
		}
	})
	sum := 0.0
	for _, l := range losses {
		sum += l
	}
	return sum / float64(n)
}

func softmax(n int, at func(int) float64) (top, sum float64) {
	top = math.Inf(-1)
	for j := range n {
		top = max(top, at(j))
	}
	for j := range n {
		sum += math.Exp(at(j) - top)
	}
	return top, sum
}

// back propagates the gradient of a vector through its normalisation to the weights of its words.
func (t *trainer) back(s *side, i int) {
	g, v := s.grad[i], s.vec[i]
	along := dot(g, v)
	for d := range g {
		g[d] = (g[d] - float32(along*v[d])) / s.norm[i]
	}
	s.slopes[i] = s.slopes[i][:0]
	for _, u := range s.uses[i] {
		s.slopes[i] = append(s.slopes[i], u.count*exp(s.weights[u.row])*dot(g, t.row(u.row)))
	}
}

// A touch is one word of one sample, seen from the row that has to change.
type touch struct {
	row, sample   int32
	factor, slope float32
	side          *side
}

// update changes the rows that the batch used, each on one core, with Adagrad's step.
func (t *trainer) update(pace float64) {
	var touches []touch
	for n := range t.sides {
		s := &t.sides[n]
		for i, uses := range s.uses {
			for k, u := range uses {
				factor := u.count * exp(s.weights[u.row])
				touches = append(touches, touch{u.row, int32(i), factor, s.slopes[i][k], s})
			}
		}
	}
	slices.SortStableFunc(touches, func(a, b touch) int { return int(a.row - b.row) })
	var starts []int
	for i := range touches {
		if i == 0 || touches[i].row != touches[i-1].row {
			starts = append(starts, i)
		}
	}
	starts = append(starts, len(touches))
	t.each(len(starts)-1, func(n int) { t.updateRow(touches[starts[n]:starts[n+1]], pace) })
}

func (t *trainer) updateRow(touches []touch, pace float64) {
	g := make([]float32, t.dims)
	for _, x := range touches {
		axpy(g, x.factor, x.side.grad[x.sample])
	}
	n := int(touches[0].row)
	v, sq := t.row(touches[0].row), t.squares[n*t.dims:(n+1)*t.dims]
	rate := float32(t.rate * pace)
	for d, x := range g {
		sq[d] += float32(x * x)
		v[d] -= float32(rate * x / (sqrt(sq[d]) + 1e-8))
	}
	for i := range t.sides {
		s, slope := &t.sides[i], float32(0)
		for _, x := range touches {
			if x.side == s {
				slope += x.slope
			}
		}
		if slope != 0 {
			s.squares[n] += float32(slope * slope)
			s.weights[n] -= float32(float32(t.weightRate*pace) * slope / (sqrt(s.squares[n]) + 1e-8))
		}
	}
}

func exp(x float32) float32  { return float32(math.Exp(float64(x))) }
func sqrt(x float32) float32 { return float32(math.Sqrt(float64(x))) }

// dot and axpy take most of the time. Dimensions are a multiple of 64. The conversions prevent fused multiply-add, which
// rounds differently.
func dot(a, b []float32) float32 {
	b = b[:len(a)]
	var s0, s1, s2, s3 float32
	for i := 0; i < len(a); i += 4 {
		s0 += float32(a[i] * b[i])
		s1 += float32(a[i+1] * b[i+1])
		s2 += float32(a[i+2] * b[i+2])
		s3 += float32(a[i+3] * b[i+3])
	}
	return (s0 + s1) + (s2 + s3)
}

func axpy(to []float32, f float32, x []float32) {
	x = x[:len(to)]
	for i := 0; i < len(to); i += 4 {
		to[i] += float32(f * x[i])
		to[i+1] += float32(f * x[i+1])
		to[i+2] += float32(f * x[i+2])
		to[i+3] += float32(f * x[i+3])
	}
}

// samplesOf converts examples to rows, without words that the table does not have.
func samplesOf(all []example, words []meaning.Token) []sample {
	row := make(map[meaning.Token]int32, len(words))
	for i, w := range words {
		row[w] = int32(i)
	}
	uses := func(terms []meaning.Term) []use {
		var list []use
		for _, t := range terms {
			if r, ok := row[t.Token]; ok {
				list = append(list, use{r, meaning.Damp(t.Count)})
			}
		}
		return list
	}
	var samples []sample
	for _, e := range all {
		s := sample{e.language, e.pkg, e.sentence, [2][]use{uses(e.query), uses(e.code)}}
		if len(s.uses[0]) >= 2 && len(s.uses[1]) >= 3 {
			samples = append(samples, s)
		}
	}
	return samples
}

// rows returns the learned table.
func (t *trainer) rows(words []meaning.Token) []meaning.Row {
	all := make([]meaning.Row, len(words))
	for i, w := range words {
		all[i] = meaning.Row{
			Token: w, Query: exp(t.sides[0].weights[i]), Code: exp(t.sides[1].weights[i]), Vector: t.row(int32(i)),
		}
	}
	return all
}

// count reports the number of samples of each language.
func count(samples []sample) string {
	n := map[split.Language]int{}
	for _, s := range samples {
		n[s.language]++
	}
	text := ""
	for _, l := range slices.Sorted(maps.Keys(n)) {
		text += fmt.Sprintf(" %s %d", l, n[l])
	}
	return text
}
