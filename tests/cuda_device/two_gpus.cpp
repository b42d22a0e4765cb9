// The machine on which the tests run over the stand-ins.
#include "cuda_double/double.hpp"

namespace {

struct TwoGpus {
    TwoGpus() { cuda_double::reset(2); }
};

const TwoGpus two_gpus;

}  // namespace
