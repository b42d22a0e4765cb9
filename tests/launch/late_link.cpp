// A library for LD_PRELOAD: no connection to another port than MASTER_PORT can be opened in the first 2.5 s
// in which the process tries, as if the network between the ranks was down.
#include <dlfcn.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>

extern "C" int connect(int descriptor, const sockaddr* address, socklen_t size) {
    using Connect = int (*)(int, const sockaddr*, socklen_t);
    static const auto next = reinterpret_cast<Connect>(dlsym(RTLD_NEXT, "connect"));
    const char* const master_port = std::getenv("MASTER_PORT");
    if (master_port == nullptr || address->sa_family != AF_INET) return next(descriptor, address, size);
    if (ntohs(reinterpret_cast<const sockaddr_in*>(address)->sin_port) == std::atoi(master_port))
        return next(descriptor, address, size);
    static const auto first = std::chrono::steady_clock::now();
    if (std::chrono::steady_clock::now() - first > std::chrono::milliseconds(2500))
        return next(descriptor, address, size);
    errno = ENETUNREACH;
    return -1;
}
