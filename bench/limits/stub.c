/* An agent that behaves like Claude Code at its start: it writes its transcript and its entry in
 * the list of running sessions at once, and then does nothing.
 *
 * usage: claude --session-id ID [...]
 */
#define _GNU_SOURCE
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static FILE *make(const char *folder, const char *name, const char *end) {
  static char path[3 * PATH_MAX];
  snprintf(path, sizeof path, "%s/%s%s", folder, name, end);
  return fopen(path, "w");
}

int main(int argc, char **argv) {
  const char *id = NULL, *home = getenv("HOME");
  for (int i = 1; i + 1 < argc; i++)
    if (!strcmp(argv[i], "--session-id")) id = argv[i + 1];
  if (id && home) {
    static char cwd[PATH_MAX], talks[2 * PATH_MAX], list[2 * PATH_MAX], pid[32];
    snprintf(talks, sizeof talks, "%s/.claude", home), mkdir(talks, 0700);
    snprintf(list, sizeof list, "%s/.claude/sessions", home), mkdir(list, 0700);
    snprintf(talks, sizeof talks, "%s/.claude/projects", home), mkdir(talks, 0700);
    snprintf(talks, sizeof talks, "%s/.claude/projects/bench", home), mkdir(talks, 0700);
    if (!getcwd(cwd, sizeof cwd)) return 1;
    FILE *talk = make(talks, id, ".jsonl");
    if (!talk) return 1;
    fprintf(talk,
            "{\"type\":\"user\",\"message\":{\"role\":\"user\",\"content\":\"go on\"},\"timestamp\":"
            "\"2026-11-15T07:00:00.000Z\",\"cwd\":\"%s\",\"sessionId\":\"%s\"}\n", cwd, id);
    fclose(talk);
    /* Its start, as the kernel tells it: the 22nd field. */
    static char stat[4096];
    FILE *own = fopen("/proc/self/stat", "r");
    size_t read = own ? fread(stat, 1, sizeof stat - 1, own) : 0;
    stat[read] = 0;
    char *at = strrchr(stat, ')');
    for (int field = 2; at && field < 22; field++) at = strchr(at + 1, ' ');
    snprintf(pid, sizeof pid, "%d", getpid());
    FILE *entry = make(list, pid, ".json");
    if (!entry) return 1;
    fprintf(entry, "{\"pid\":%s,\"sessionId\":\"%s\",\"cwd\":\"%s\",\"procStart\":\"%lld\",\"status\":\"busy\"}\n", pid,
            id, cwd, at ? atoll(at + 1) : 0LL);
    fclose(entry);
  }
  for (;;) pause();
}
