/// Sentences for former spellings: a program that uses one does not compile, and the error names the new one.
#pragma once

#include "dptk/core/config.hpp"

/// Declares the former name of a type, whose use is an error.
#define DPTK_RENAMED_TYPE(former, present)                                              \
    template <class T = void>                                                           \
    struct former##Former {                                                             \
        static_assert(sizeof(T*) == 0, "dptk: " #former " is called " #present " now"); \
    };                                                                                  \
    using former = former##Former<> /* NOLINT(bugprone-macro-parentheses): a type */

/// Declares a former function of a group, whose call is an error.
#define DPTK_MEMBER_NOW(name)                                                                         \
    template <class Group, class... Arguments>                                                        \
    void name(Group&, Arguments&&...) {                                                               \
        static_assert(sizeof(Group*) == 0, "dptk: call group." #name "(...), a member of the group"); \
    }
