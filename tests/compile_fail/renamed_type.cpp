#include <dptk/optim/sgd.hpp>

#ifdef MISTAKE
dptk::SGD<float> sgd(dptk::SgdOptions{.lr = 0.1});
#else
dptk::SGD<float> sgd(dptk::SGDOptions{.lr = 0.1});
#endif
