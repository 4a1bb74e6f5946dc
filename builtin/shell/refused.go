package shell

import "strings"

// refusedProgram says what a program does that makes its arguments impossible to judge; empty: nothing is
// known. Such a program is run only where a rule names its arguments, or trusts it.
func refusedProgram(name string) string {
	for why, names := range map[string]string{
		"runs other programs: name the program itself": "env xargs nice nohup timeout time setsid stdbuf ionice taskset chrt flock watch parallel entr unshare nsenter chroot " +
			"setarch linux32 linux64 i386 x86_64 setpriv capsh runuser su sudo doas pkexec sg newgrp start-stop-daemon systemd-run daemonize run-parts rlwrap script expect unbuffer " +
			"faketime fakeroot proot bwrap firejail prlimit numactl cgexec dbus-run-session xvfb-run catchsegv choom uclampset coresched ltrace strace perf valgrind gdb lldb gdbserver " +
			"busybox toybox sash ld.so ld-linux.so.2 ld-linux-x86-64.so.2 ld-linux-aarch64.so.1 exec command builtin eval source xdotool at batch crontab screen tmux byobu dtach " +
			"npx pnpx bunx uvx pipx watchexec direnv mise asdf pyenv nodenv rbenv hyperfine",
		"lets its user run commands from within": "vi vim nvim view ex rvim vimdiff vim.basic vim.tiny ed red emacs emacsclient nano pico joe mcedit less more most pg man info w3m lynx elinks links mutt " +
			"mail mailx sftp telnet gnuplot octave R irb pry sqlite3 mysql mariadb psql mongo mongosh redis-cli bc dc m4 tclsh wish ipython jshell ghci iex erl elixir scala julia " +
			"fzf mc ranger vipw visudo crash",
		"runs code that cannot be judged": "deno bun java javac jrunscript groovy kotlin kotlinc dotnet mono csharp swift ocaml racket guile sbcl clisp osascript pwsh powershell fish csh tcsh rbash ash " +
			"tsx ts-node coffee Rscript nim zig rustc gcc cc g++ c++ clang clang++ tcc ld as ar cpp cmake ninja meson bazel buck ant mvn gradle sbt rake bundle gem composer poetry tox nox uv pnpm yarn " +
			"tex latex pdftex pdflatex xelatex lualatex gs convert magick mogrify identify ffmpeg exiftool systemtap stap bpftrace dtrace gimp inkscape libreoffice soffice",
		"reaches other machines": "ssh scp rsync rsh rlogin rcp mosh nc ncat netcat socat curl wget aria2c httpie http ftp tftp lftp dig nslookup host whois nmap tcpdump tshark openssl gpg git-remote-ext " +
			"aws gcloud az gsutil rclone svn hg bzr cvs gh glab",
		"changes the machine beyond the offered folders": "docker podman nerdctl ctr runc kubectl helm terraform ansible ansible-playbook vagrant systemctl service journalctl loginctl mount umount losetup " +
			"insmod modprobe rmmod sysctl iptables nft ip ifconfig route apt apt-get aptitude dpkg dpkg-deb yum dnf rpm pacman apk snap flatpak brew port nix nix-env nix-shell useradd usermod passwd " +
			"chown chgrp chattr setfacl setcap kill pkill killall reboot shutdown halt poweroff init telinit dmsetup mkfs fdisk parted swapon update-alternatives logrotate wall write logger",
		"takes file names or programs from files and streams": "cpio pax 7z 7za 7zr rar unrar patch install csplit split gcore objcopy objdump readelf nm strip ctags etags cscope indent cpulimit ps pv printenv",
	} {
		if strings.Contains(" "+names+" ", " "+name+" ") {
			return why
		}
	}
	return ""
}
