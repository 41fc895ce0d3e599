/* The least work that can know which transcripts are there and whether they changed.
 *
 * usage: walk names|stat|readall ROOT...
 *
 * One thread. Finds every *.jsonl below the roots; `stat` asks statx for size,
 * times and inode of each, `readall` reads every byte. Prints the file and byte
 * counts, so that a caller can see that the work was done.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum mode { NAMES, STAT, READALL };

static enum mode mode;
static unsigned long long files, bytes;
static char buffer[1 << 20];

static void visit(int dir, const char *name) {
  files++;
  if (mode == STAT) {
    struct statx sx;
    unsigned want = STATX_SIZE | STATX_MTIME | STATX_CTIME | STATX_INO;
    if (statx(dir, name, AT_SYMLINK_NOFOLLOW | AT_STATX_DONT_SYNC, want, &sx) == 0) bytes += sx.stx_size;
  } else if (mode == READALL) {
    int fd = openat(dir, name, O_RDONLY | O_CLOEXEC);
    ssize_t got;
    while (fd >= 0 && (got = read(fd, buffer, sizeof buffer)) > 0) bytes += got;
    if (fd >= 0) close(fd);
  }
}

static void walk(int fd) {
  DIR *dir = fdopendir(fd);
  if (!dir) {
    close(fd);
    return;
  }
  struct dirent *entry;
  while ((entry = readdir(dir))) {
    const char *name = entry->d_name;
    if (!strcmp(name, ".") || !strcmp(name, "..")) continue;
    if (entry->d_type == DT_DIR) {
      int child = openat(fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
      if (child >= 0) walk(child);
      continue;
    }
    size_t n = strlen(name);
    if (n > 6 && !memcmp(name + n - 6, ".jsonl", 6)) visit(fd, name);
  }
  closedir(dir);
}

int main(int argc, char **argv) {
  if (argc < 3) return 2;
  mode = !strcmp(argv[1], "names") ? NAMES : !strcmp(argv[1], "stat") ? STAT : READALL;
  for (int i = 2; i < argc; i++) {
    int fd = open(argv[i], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0) walk(fd);
  }
  printf("files=%llu bytes=%llu\n", files, bytes);
  return 0;
}
