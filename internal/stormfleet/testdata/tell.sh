# A Narratoria tool that tells twenty lines, over a second.
for n in 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19; do
  printf '{"version":"0","type":"log","level":"info","message":"line","fields":{"n":%d}}\n' $n
  sleep 0.05
done
printf '{"version":"0","type":"done","ok":true}\n'
