#include <cstdio>

int world_size();
const char* transport_of_this_unit();

int main() {
    const int size = world_size();
    std::printf("%s: %d rank(s)\n", transport_of_this_unit(), size);
    return size == 2 ? 0 : 1;
}
