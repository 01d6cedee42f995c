/*
 * Compiles a profile with libseccomp, as container runtimes do. Reads one command a line:
 *
 *   default ACTION                 first; ACTION is a number (SCMP_ACT_*, with its data)
 *   arch TOKEN                     adds an architecture (SCMP_ARCH_*)
 *   number TOKEN NAME              prints the number of a call, or a negative one
 *   rule ACTION NAME [ARG OP A B]...
 *   export                         writes the program to standard output and ends
 *   instruction CODE JT JF K       adds an instruction to a program of the caller's
 *   install                        has the kernel run that program over this process
 *
 * An unknown name is ignored. Anything that fails ends the program with a message.
 */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <seccomp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

static void fail(const char *what, int error)
{
	fprintf(stderr, "%s: %s\n", what, strerror(-error));
	exit(1);
}

static void rule(scmp_filter_ctx ctx, char *rest)
{
	struct scmp_arg_cmp args[6];
	unsigned count = 0;
	char *word = strtok(rest, " ");
	unsigned action = strtoul(word, NULL, 0);
	char *name = strtok(NULL, " ");
	int number = seccomp_syscall_resolve_name(name);
	int error;

	if (number == __NR_SCMP_ERROR)
		return;
	while ((word = strtok(NULL, " ")) && count < 6) {
		args[count].arg = strtoul(word, NULL, 0);
		args[count].op = strtoul(strtok(NULL, " "), NULL, 0);
		args[count].datum_a = strtoull(strtok(NULL, " "), NULL, 0);
		args[count].datum_b = strtoull(strtok(NULL, " "), NULL, 0);
		count++;
	}
	error = seccomp_rule_add_array(ctx, action, number, count, args);
	if (error)
		fail(name, error);
}

static struct sock_filter program[4096];
static unsigned short length_of_program;

static void instruction(char *rest)
{
	struct sock_filter *next = &program[length_of_program++];

	next->code = strtoul(rest, &rest, 0);
	next->jt = strtoul(rest, &rest, 0);
	next->jf = strtoul(rest, &rest, 0);
	next->k = strtoul(rest, &rest, 0);
}

static void install(void)
{
	struct sock_fprog whole = { length_of_program, program };

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
	    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &whole))
		fail("install", -errno);
}

int main(void)
{
	scmp_filter_ctx ctx = NULL;
	char *line = NULL;
	size_t size = 0;
	ssize_t length;
	int error;

	while ((length = getline(&line, &size, stdin)) > 0) {
		char *rest = strchr(line, ' ');

		line[length - 1] = '\0';
		if (!strncmp(line, "default ", 8)) {
			ctx = seccomp_init(strtoul(rest, NULL, 0));
			if (!ctx)
				fail("seccomp_init", 0);
		} else if (!strncmp(line, "arch ", 5)) {
			error = seccomp_arch_add(ctx, strtoul(rest, NULL, 0));
			if (error && seccomp_arch_exist(ctx, strtoul(rest, NULL, 0)))
				fail(line, error);
		} else if (!strncmp(line, "number ", 7)) {
			char *name;
			unsigned arch = strtoul(rest, &name, 0);

			printf("%d\n", seccomp_syscall_resolve_name_arch(arch, name + 1));
		} else if (!strncmp(line, "rule ", 5)) {
			rule(ctx, rest + 1);
		} else if (!strncmp(line, "instruction ", 12)) {
			instruction(rest);
		} else if (!strcmp(line, "install")) {
			install();
			puts("installed");
		} else if (!strcmp(line, "export")) {
			error = seccomp_export_bpf(ctx, 1);
			if (error)
				fail(line, error);
			return 0;
		} else {
			fail(line, -22);
		}
	}
	return 0;
}
