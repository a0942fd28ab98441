"""Two forwards in no_sync, of which the second's backward joins the gradients all the same."""

import wisp
import wisp.distributed as dist

dist.init_process_group()
rank = dist.get_rank()
model = wisp.nn.parallel.DistributedDataParallel(wisp.nn.Linear(2, 1, bias=False))
inputs = [wisp.full((1, 2), float(1 + rank)), wisp.full((1, 2), float(10 * (1 + rank)))]
with model.no_sync():
    first, second = (model(x).sum() for x in inputs)
first.backward()
assert wisp.equal(model.module.weight.grad, inputs[0])
model.require_backward_grad_sync = True
model.reducer.prepare_for_backward([])
second.backward()
expected = wisp.full((1, 2), sum(11.0 * (1 + r) for r in range(dist.get_world_size())) / dist.get_world_size())
wisp.testing.assert_close(model.module.weight.grad, expected)
print(f"rank {rank}: late sync")
