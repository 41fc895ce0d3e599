/* Runs one program and says what it cost: "ns=… rss_kb=… status=…" on our stdout.
 *
 * usage: meter OUT PROGRAM [ARGS...]     the program's stdout goes to OUT
 *
 * A process of its own, and a tiny one, because Linux carries the peak memory
 * of the parent's image over an exec into the child's account.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

static long long now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000000LL + t.tv_nsec;
}

int main(int argc, char **argv) {
  if (argc < 3) return 2;
  int out = open(argv[1], O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  int in = open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (out < 0 || in < 0) {
    fprintf(stderr, "meter: %s: %s\n", argv[1], strerror(errno));
    return 2;
  }
  posix_spawn_file_actions_t io;
  posix_spawn_file_actions_init(&io);
  posix_spawn_file_actions_adddup2(&io, in, 0);
  posix_spawn_file_actions_adddup2(&io, out, 1);

  pid_t pid;
  long long from = now_ns();
  int err = posix_spawn(&pid, argv[2], &io, NULL, argv + 2, environ);
  if (err) {
    fprintf(stderr, "meter: %s: %s\n", argv[2], strerror(err));
    return 2;
  }
  int status;
  struct rusage used;
  while (wait4(pid, &status, 0, &used) < 0)
    if (errno != EINTR) return 2;
  long long took = now_ns() - from;
  int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  printf("ns=%lld rss_kb=%ld status=%d\n", took, used.ru_maxrss, code);
  return 0;
}
