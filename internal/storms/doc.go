// Package storms proves, in its tests, that a server whose files change all the time continues to serve: no call fails
// because of a reload, nothing is left of what was replaced, and the offered tools are in the end those of the files. It
// also serves while its sources are still being opened.
package storms
