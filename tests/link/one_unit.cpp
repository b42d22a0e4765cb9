#include <cstdio>

int world_size();

int main() {
    const int size = world_size();
    std::printf("%d rank(s)\n", size);
    return size == 2 ? 0 : 1;
}
