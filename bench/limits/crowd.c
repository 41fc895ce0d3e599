/* A crowd of processes that do nothing, for measuring what looking at them costs.
 *
 * usage: crowd N     prints "ready" once N children stand; ends them all, then
 *                    itself, when its stdin closes. `crowd pause` is one child.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char **argv) {
  if (argc != 2) return 2;
  if (!strcmp(argv[1], "pause"))
    for (;;) pause();

  int count = atoi(argv[1]), gate[2];
  pid_t self = getpid(), *children = calloc(count, sizeof *children);
  char byte;
  if (!children || pipe2(gate, O_CLOEXEC)) return 1;
  for (int i = 0; i < count; i++) {
    pid_t pid = fork();
    if (pid < 0) {
      perror("crowd: fork");
      return 1; /* the children that stand die with us */
    }
    if (pid == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (getppid() != self) _exit(1);
      close(0);
      close(1);
      execl("/proc/self/exe", "crowd", "pause", (char *)0);
      _exit(127);
    }
    children[i] = pid;
  }
  /* Each child holds the write end until its exec: end of file means all are there. */
  close(gate[1]);
  while (read(gate[0], &byte, 1) > 0) {
  }
  puts("ready");
  fflush(stdout);
  while (read(0, &byte, 1) > 0) {
  }
  for (int i = 0; i < count; i++) kill(children[i], SIGKILL);
  while (wait(NULL) > 0) {
  }
  return 0;
}
