/* A terminal without a person: what an attached program costs, told in numbers.
 *
 * usage: terminal relay FILE           FILE through a terminal, a host and a socket to one who
 *                                      discards it: the least that a host and its viewer can do
 *        terminal flood PROGRAM...     types a key, then takes what comes until PROGRAM ends
 *        terminal discard PROGRAM...   the same, with PROGRAM's output thrown away by itself
 *        terminal echo N PROGRAM...    types N characters and waits for each to come back
 *
 * PROGRAM stands on a terminal of 120 x 40. Says "ns=… bytes=…", or "p50_ns=… lost=…".
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

enum { SETTLE_MS = 400, QUIET_MS = 150 };
static char buffer[1 << 16];

static long long now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static pid_t start(int *master, int raw, int discard, char **argv) {
  *master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
  if (*master < 0 || grantpt(*master) || unlockpt(*master)) exit(2);
  struct winsize size = {.ws_row = 40, .ws_col = 120};
  ioctl(*master, TIOCSWINSZ, &size);
  const char *name = ptsname(*master);
  pid_t pid = fork();
  if (pid) return pid;
  setsid();
  int slave = open(name, O_RDWR);
  ioctl(slave, TIOCSCTTY, 0);
  if (raw) {
    struct termios t;
    tcgetattr(slave, &t), cfmakeraw(&t), tcsetattr(slave, TCSANOW, &t);
  }
  dup2(slave, 0), dup2(discard ? open("/dev/null", O_WRONLY) : slave, 1), dup2(slave, 2);
  execvp(argv[0], argv);
  _exit(127);
}

static int relay(char *file) {
  int ends[2], master;
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends)) return 2;
  pid_t viewer = fork();
  if (!viewer) {
    close(ends[0]);
    while (read(ends[1], buffer, sizeof buffer) > 0) {}
    _exit(0);
  }
  close(ends[1]);
  char *argv[] = {"cat", file, NULL};
  long long from = now_ns(), bytes = 0;
  pid_t agent = start(&master, 1, 0, argv);
  ssize_t got;
  while ((got = read(master, buffer, sizeof buffer)) > 0) {
    bytes += got;
    for (ssize_t sent = 0; sent < got;) {
      ssize_t n = write(ends[0], buffer + sent, got - sent);
      if (n < 0) return 2;
      sent += n;
    }
  }
  close(ends[0]);
  waitpid(viewer, NULL, 0), waitpid(agent, NULL, 0);
  printf("ns=%lld bytes=%lld\n", now_ns() - from, bytes);
  return 0;
}

/* Takes what comes until it is quiet. */
static void settle(int master) {
  struct pollfd at = {.fd = master, .events = POLLIN};
  int wait = SETTLE_MS;
  while (poll(&at, 1, wait) > 0 && read(master, buffer, sizeof buffer) > 0) wait = QUIET_MS;
}

static int flood(int discard, char **argv) {
  int master, status;
  pid_t pid = start(&master, 0, discard, argv);
  settle(master);
  long long from = now_ns(), bytes = 0;
  if (write(master, "x", 1) != 1) return 2;
  ssize_t got;
  while ((got = read(master, buffer, sizeof buffer)) > 0) bytes += got;
  waitpid(pid, &status, 0);
  printf("ns=%lld bytes=%lld\n", now_ns() - from, bytes);
  return 0;
}

static int compare(const void *a, const void *b) {
  long long x = *(const long long *)a, y = *(const long long *)b;
  return x < y ? -1 : x > y;
}

static int echo(int count, char **argv) {
  int master, lost = 0, told = 0;
  long long *times = calloc(count + 1, sizeof *times);
  pid_t pid = start(&master, 0, 0, argv);
  settle(master);
  struct pollfd at = {.fd = master, .events = POLLIN};
  struct timespec pause = {.tv_nsec = 2000000};
  for (int i = 0; i < count; i++) {
    char key = 'a' + i % 26;
    long long from = now_ns();
    if (write(master, &key, 1) != 1) return 2;
    int back = 0;
    while (!back && poll(&at, 1, 1000) > 0) {
      ssize_t got = read(master, buffer, sizeof buffer);
      if (got <= 0) break;
      back = memchr(buffer, key, got) != NULL;
    }
    if (back) times[told++] = now_ns() - from;
    else lost++;
    nanosleep(&pause, NULL);
  }
  close(master); /* hangs up on it */
  waitpid(pid, NULL, 0);
  qsort(times, told, sizeof *times, compare);
  printf("p50_ns=%lld lost=%d\n", told ? times[told / 2] : 0LL, lost);
  return 0;
}

int main(int argc, char **argv) {
  if (argc == 3 && !strcmp(argv[1], "relay")) return relay(argv[2]);
  if (argc > 2 && !strcmp(argv[1], "flood")) return flood(0, argv + 2);
  if (argc > 2 && !strcmp(argv[1], "discard")) return flood(1, argv + 2);
  if (argc > 3 && !strcmp(argv[1], "echo")) return echo(atoi(argv[2]), argv + 3);
  return 2;
}
