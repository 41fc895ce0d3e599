/* A process that is an agent by its name, and sleeps. */
#include <unistd.h>

int main(void) {
    for (;;) pause();
}
