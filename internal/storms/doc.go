// Package storms proves, in its tests, that a server whose files change all the time goes on serving: no call fails
// because of a reload, nothing is left of what was replaced, and what is offered in the end is what the files say.
package storms
