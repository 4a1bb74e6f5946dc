package openai_test

import "toolpost/internal/scripted"

const (
	token = scripted.Token
	limit = scripted.Limit
)

var (
	serve, dig, chat, says = scripted.Serve, scripted.Dig, scripted.Chat, scripted.Says
	calls, readFile        = scripted.Calling, scripted.ReadFile
)
