/* The least that could fetch an answer: connect to a unix socket, read to the end, write to stdout. */
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

int main(int argc, char **argv) {
    static char buffer[1 << 16];
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (argc != 2 || strlen(argv[1]) >= sizeof address.sun_path) return 2;
    strcpy(address.sun_path, argv[1]);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address) < 0) return 1;
    for (;;) {
        ssize_t n = read(fd, buffer, sizeof buffer);
        if (n <= 0) return n < 0;
        for (ssize_t at = 0; at < n;) {
            ssize_t m = write(1, buffer + at, n - at);
            if (m < 0) return 1;
            at += m;
        }
    }
}
