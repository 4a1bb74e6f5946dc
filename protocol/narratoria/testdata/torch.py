"""The minimal tool of section 9."""

print('{"version":"0","type":"log","level":"info","message":"Starting"}')
print('{"version":"0","type":"state_patch","patch":{"flags":{"torchLit":true}}}')
print('{"version":"0","type":"done","ok":true,"summary":"Torch lit."}')
