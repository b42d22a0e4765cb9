#include <dptk/adapters/armadillo.hpp>
#include <dptk/ddp.hpp>

void train(dptk::ProcessGroup& group, arma::mat& weight, arma::mat& gradient) {
#ifdef MISTAKE
    dptk::DistributedDataParallel ddp(group, weight, gradient.t());
#else
    dptk::DistributedDataParallel ddp(group, weight, gradient.rows(0, 1));
#endif
}
