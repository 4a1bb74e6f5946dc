// The functions of play.go without a body are the runtime's; a file like this one lets the compiler accept that.
