# An innocent tool: it answers with what it was asked.
read -r request
printf '{"version":"0","type":"done","ok":true,"output":%s}\n' "$request"
