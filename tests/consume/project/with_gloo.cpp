// A translation unit that registers the Gloo transport.
#include <dptk/comm/gloo.hpp>

int sum_in_unit_with_gloo(dptk::ProcessGroup& group, int value) {
    return group.all_reduce_value(value);
}
