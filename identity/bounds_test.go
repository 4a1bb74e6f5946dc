package identity

import "testing"

func TestADoorTakesAFractionOfTheDescriptors(t *testing.T) {
	for descriptors, want := range map[uint64]Bounds{
		64: {8, 2, 4}, 1024: {128, 32, 64}, 20_000: {2500, 625, 1250}, 1 << 20: {8192, 2048, 4096}, ^uint64(0): {8192, 2048, 4096}, 0: {8, 2, 4},
	} {
		if got := boundsOf(descriptors); got != want {
			t.Errorf("%d: %+v", descriptors, got)
		}
	}
	if b := DefaultBounds(); b.All < 8 || b.Strangers < 2 || b.Each < 4 {
		t.Errorf("%+v", b)
	}
}
