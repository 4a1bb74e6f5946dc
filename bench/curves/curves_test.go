package curves

import "testing"

// Everything drawn is within the plot.
func TestCurvesStayInside(t *testing.T) {
	for _, p := range []Panel{
		{Title: "counts", Marks: []Mark{{Size: 10, Value: 16_000}, {Size: 1_000, Value: 15_600}, {Size: 10_000, Value: 400}}, Limits: []float64{20_000, 1, 0}},
		{Title: "bytes", Log: true, Marks: []Mark{{Size: 1 << 10, Value: 8 << 20}, {Size: 64 << 20, Value: 120 << 20}}, Limits: []float64{1, 1 << 30}},
		{Title: "one", Marks: []Mark{{Size: 1, Value: 0.3}}, Limits: []float64{0}},
	} {
		for _, v := range append(p.values(), p.Limits...) {
			if y := p.y(v); y < plotTop-0.01 || y > plotTop+plotHigh+0.01 {
				t.Errorf("%s: %v is at %.1f", p.Title, v, y)
			}
		}
		for _, m := range p.Marks {
			if x := p.x(m.Size); x < plotLeft-0.01 || x > plotLeft+plotWide+0.01 {
				t.Errorf("%s: %v is at %.1f", p.Title, m.Size, x)
			}
		}
	}
}
