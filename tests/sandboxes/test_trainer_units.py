"""The trainer's arithmetic held against torch, NumPy, Stable-Baselines3 and plain loops."""

import math

import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st
from stable_baselines3.common.buffers import RolloutBuffer
from torch import Tensor

from sandboxes.base import ActionSpec
from sandboxes.trainer.networks import ParameterStack, backward, forward, forward_kept, layer_shapes, orthogonal_
from sandboxes.trainer.normalise import ObservationNormaliser, RewardScaler, RunningMoments
from sandboxes.trainer.policy import PolicyOutput, PopulationPolicy, categorical_log_prob, gaussian_log_prob
from sandboxes.trainer.ppo import PopulationAdam, generalised_advantage

CPU = torch.device("cpu")
H, P, N = 17, 3, 4
DISCOUNT, LAMBDA = 0.93, 0.88


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def chance(*shape: int, share: float, seed: int) -> Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed)) < share


def policy_of(action: ActionSpec, members: int = P, seed: int = 5) -> PopulationPolicy:
    return PopulationPolicy(6, action, (16, 8), 0.7, range(seed, seed + members), CPU)


# --- advantages


def experience(seed: int) -> dict[str, Tensor]:
    """Rewards, values and ends; `next_value` agrees with the following `value` inside an episode."""
    terminated = chance(H, P, N, share=0.15, seed=seed)
    done = terminated | chance(H, P, N, share=0.2, seed=seed + 1)
    value = normal(H, P, N, seed=seed + 2)
    beyond = normal(H, P, N, seed=seed + 3)  # of last states: of an episode, or of the rollout
    following = torch.cat([value[1:], beyond[-1:]])
    return {
        "reward": normal(H, P, N, seed=seed + 4),
        "value": value,
        "next_value": torch.where(done, beyond, following),
        "terminated": terminated,
        "done": done,
    }


@given(st.integers(0, 10_000))
@settings(deadline=None, max_examples=20)
def test_advantages_equal_their_definition(seed: int):
    """The discounted sum over later temporal differences of the same episode, written out."""
    data = experience(seed)
    advantage, target = generalised_advantage(**data, discount=DISCOUNT, lam=LAMBDA)
    reward, value, follow, terminated, done = (data[k].numpy() for k in data)
    for p in range(P):
        for n in range(N):
            for start in range(H):
                total, weight = 0.0, 1.0
                for t in range(start, H):
                    future = 0.0 if terminated[t, p, n] else DISCOUNT * follow[t, p, n]
                    total += weight * (reward[t, p, n] + future - value[t, p, n])
                    weight *= DISCOUNT * LAMBDA
                    if done[t, p, n]:
                        break
                assert float(advantage[start, p, n]) == pytest.approx(total, abs=1e-5)
    assert torch.equal(target, advantage + data["value"])


def test_advantages_equal_stable_baselines3():
    """There the value of a truncated episode's last state is added to its reward."""
    data = experience(99)
    advantage, target = generalised_advantage(**data, discount=DISCOUNT, lam=LAMBDA)
    truncated = data["done"] & ~data["terminated"]
    space = spaces.Box(-1.0, 1.0, (1,))
    for member in range(P):
        buffer = RolloutBuffer(H, space, space, gae_lambda=LAMBDA, gamma=DISCOUNT, n_envs=N)
        start = np.ones(N, dtype=bool)
        for t in range(H):
            bonus = DISCOUNT * torch.where(truncated, data["next_value"], 0.0)[t, member]
            reward = (data["reward"][t, member] + bonus).numpy()
            value = data["value"][t, member]
            buffer.add(np.zeros((N, 1)), np.zeros((N, 1)), reward, start, value, torch.zeros(N))
            start = data["done"][t, member].numpy()
        buffer.compute_returns_and_advantage(data["next_value"][-1, member], start)
        np.testing.assert_allclose(advantage[:, member].numpy(), buffer.advantages, atol=1e-5)
        np.testing.assert_allclose(target[:, member].numpy(), buffer.returns, atol=1e-5)


# --- networks and optimiser


def sequential(parameters: list[Tensor], member: int) -> torch.nn.Sequential:
    """One member's network as torch would write it."""
    layers: list[torch.nn.Module] = []
    for weight, bias in zip(parameters[0::2], parameters[1::2], strict=True):
        linear = torch.nn.Linear(weight.shape[1], weight.shape[2])
        linear.weight.data = weight[member].T.clone()
        linear.bias.data = bias[member, 0].clone()
        layers += [linear, torch.nn.Tanh()]
    return torch.nn.Sequential(*layers[:-1])


def stack_of(sizes: list[int], seed: int = 1) -> ParameterStack:
    stack = ParameterStack(P, layer_shapes(sizes), CPU)
    with torch.no_grad():
        stack.flat.copy_(normal(*stack.flat.shape, seed=seed) * 0.4)
    return stack


@pytest.mark.parametrize("sizes", [[6, 2], [6, 16, 2], [5, 32, 17, 3], [3, 8, 8, 8, 1]])
def test_stacked_networks_and_their_derivative_equal_torch(sizes: list[int]):
    stack = stack_of(sizes)
    x, upstream = normal(P, 40, sizes[0], seed=2), normal(P, 40, sizes[-1], seed=3)
    output = forward(stack.views, x)
    backward(stack.views, stack.grad_views, forward_kept(stack.views, x), upstream.clone())
    for member in range(P):
        reference = sequential(stack.views, member)
        expected = reference(x[member])
        torch.testing.assert_close(output[member], expected.detach(), atol=1e-5, rtol=1e-5)
        (expected * upstream[member]).sum().backward()
        linears = [layer for layer in reference if isinstance(layer, torch.nn.Linear)]
        for index, linear in enumerate(linears):
            weight, bias = stack.grad_views[2 * index][member], stack.grad_views[2 * index + 1][member, 0]
            torch.testing.assert_close(weight, linear.weight.grad.T, atol=2e-4, rtol=1e-4)
            torch.testing.assert_close(bias, linear.bias.grad, atol=2e-4, rtol=1e-4)


def test_parameters_of_a_member_lie_in_its_own_row():
    """What is between the parameters stays zero, or the gradient's norm would be wrong."""
    stack = ParameterStack(P, layer_shapes([5, 7, 3]), CPU)
    for index, view in enumerate(stack.views):
        view[1] += index + 1.0
    assert not stack.flat[0].any()
    assert not stack.flat[2].any()
    assert int((stack.flat[1] != 0).sum()) == 5 * 7 + 7 + 7 * 3 + 3


@pytest.mark.parametrize("action", [ActionSpec(3), ActionSpec(4, discrete=True)], ids=["gaussian", "categorical"])
def test_the_policys_gradient_equals_autograd(action: ActionSpec):
    """Of a loss that uses everything a policy says, through a twin that autograd differentiates as a whole."""
    policy, observation = policy_of(action), normal(P, 30, 6, seed=4)
    with torch.no_grad():
        policy.stack.flat.add_(normal(*policy.stack.flat.shape, seed=6) * 0.1)
        chosen, _, _ = policy.act(observation, normal(P, 30, action.size, seed=5))

    def loss(out: PolicyOutput) -> Tensor:
        log_prob, entropy = out.log_prob_and_entropy(chosen)
        return log_prob.mean() - 0.3 * entropy.mean() + 0.5 * (out.value - 1.0).square().mean()

    policy.differentiate(observation, loss)
    views = [view.detach().clone().requires_grad_() for view in policy.stack.views]

    def network(parameters: list[Tensor]) -> Tensor:
        x = observation
        for index in range(0, len(parameters), 2):
            x = x @ parameters[index] + parameters[index + 1]
            x = torch.tanh(x) if index < len(parameters) - 2 else x
        return x

    actor, critic = network(views[: len(policy.actor)]), network(views[len(policy.actor) : -1]).squeeze(-1)
    loss(PolicyOutput(policy, actor, critic, views[-1])).backward()
    for ours, theirs in zip(policy.stack.grad_views, views, strict=True):
        expected = torch.zeros_like(ours) if theirs.grad is None else theirs.grad
        torch.testing.assert_close(ours, expected, atol=1e-5, rtol=1e-4)
        assert action.discrete or bool(ours.abs().sum() > 0)


def test_population_adam_equals_torch_adam_with_clipped_gradients():
    """Per member: one with tiny gradients, one at the clip's border, one far above it."""
    policy = policy_of(ActionSpec(2))
    ours = PopulationAdam(policy, learning_rate=0.01, max_grad_norm=1.0)
    theirs = [torch.nn.Parameter(row.clone()) for row in policy.stack.flat]
    optimisers = [torch.optim.Adam([parameter], lr=0.01, eps=1e-8) for parameter in theirs]
    scale = torch.tensor([1e-3, 0.05, 30.0]).unsqueeze(-1)
    for step in range(25):
        grad = normal(*policy.stack.flat.shape, seed=step) * scale
        policy.stack.grad.copy_(grad)
        ours.step()
        assert not policy.stack.grad.any()
        for member, (parameter, optimiser) in enumerate(zip(theirs, optimisers, strict=True)):
            parameter.grad = grad[member].clone()
            torch.nn.utils.clip_grad_norm_([parameter], 1.0)
            optimiser.step()
            torch.testing.assert_close(policy.stack.flat[member], parameter.detach(), atol=2e-6, rtol=1e-5)


def test_rates_follow_each_members_own_divergence():
    adam = PopulationAdam(policy_of(ActionSpec(1), members=4), learning_rate=3e-4, max_grad_norm=1.0)
    adam.adapt(torch.tensor([0.05, 0.01, 0.002, float("nan")]), target=0.01)
    torch.testing.assert_close(adam.rate.squeeze(-1), torch.tensor([2e-4, 3e-4, 4.5e-4, 3e-4]))
    for _ in range(40):
        adam.adapt(torch.tensor([1.0, 0.01, 0.0, 0.01]), target=0.01)
    low, start, high, _ = adam.rate.squeeze(-1).tolist()
    assert low < start < high < 0.1
    assert low > 1e-7


def test_initial_weights_are_orthogonal_and_each_members_own():
    policy = policy_of(ActionSpec(3), members=4)
    for parameters, last in ((policy.actor, 0.01), (policy.critic, 1.0)):
        gains = [math.sqrt(2.0), math.sqrt(2.0), last]
        for weight, bias, gain in zip(parameters[0::2], parameters[1::2], gains, strict=True):
            assert not bias.any()
            for matrix in weight / gain:
                rows, columns = matrix.shape
                product = matrix @ matrix.T if rows <= columns else matrix.T @ matrix
                torch.testing.assert_close(product, torch.eye(min(rows, columns)), atol=1e-5, rtol=0.0)
            assert not torch.equal(weight[0], weight[1])
    assert torch.equal(policy.stack.flat[2], policy_of(ActionSpec(3), members=1, seed=7).stack.flat[0])


def test_orthogonal_weights_have_no_preferred_sign():
    """The sign correction makes them uniform over all rotations; without it, diagonals would lean to one side."""
    stack = ParameterStack(400, layer_shapes([2, 2]), CPU)
    orthogonal_(stack.views, [torch.Generator().manual_seed(seed) for seed in range(400)], output_gain=1.0)
    corner = stack.views[0][:, 0, 0]
    assert abs(float(corner.mean())) < 4.0 * math.sqrt(0.5 / 400)
    assert float(corner.square().mean()) == pytest.approx(0.5, abs=0.1)


# --- distributions


def test_gaussian_probabilities_equal_torch_distributions():
    mean, log_std, action = normal(P, 9, 3, seed=1), normal(P, 1, 3, seed=2) * 0.3, normal(P, 9, 3, seed=3)
    reference = torch.distributions.Independent(torch.distributions.Normal(mean, log_std.exp()), 1)
    torch.testing.assert_close(gaussian_log_prob(mean, log_std, action), reference.log_prob(action))
    said = PolicyOutput(policy_of(ActionSpec(3)), mean, normal(P, 9), log_std)
    log_prob, entropy = said.log_prob_and_entropy(action)
    torch.testing.assert_close(log_prob, reference.log_prob(action))
    torch.testing.assert_close(entropy.expand(P, 9), reference.entropy())


def test_categorical_probabilities_equal_torch_distributions():
    logits = normal(P, 9, 4, seed=1)
    action = torch.randint(4, (P, 9), generator=torch.Generator().manual_seed(2))
    reference = torch.distributions.Categorical(logits=logits)
    torch.testing.assert_close(categorical_log_prob(logits, action), reference.log_prob(action))
    said = PolicyOutput(policy_of(ActionSpec(4, discrete=True)), logits, normal(P, 9), normal(P, 1, 4))
    log_prob, entropy = said.log_prob_and_entropy(action)
    torch.testing.assert_close(log_prob, reference.log_prob(action))
    torch.testing.assert_close(entropy, reference.entropy())


def test_discrete_actions_are_drawn_with_the_policys_probabilities():
    """Gumbel noise, as the collector makes it from normal noise, and the largest sum: a draw from the softmax."""
    policy = policy_of(ActionSpec(3, discrete=True), members=1)
    with torch.no_grad():
        policy.actor[-1].copy_(torch.tensor([[[1.0, 0.0, -1.0]]]))
    uniform = torch.rand(1, 40_000, 3, generator=torch.Generator().manual_seed(1)).clamp(1e-7, 1.0 - 1e-7)
    action, log_prob, logits = policy.act(torch.zeros(1, 40_000, 6), -torch.log(-torch.log(uniform)))
    expected = torch.softmax(torch.tensor([1.0, 0.0, -1.0]), dim=0)
    observed = torch.bincount(action[0], minlength=3) / 40_000
    torch.testing.assert_close(observed, expected, atol=0.01, rtol=0.0)
    torch.testing.assert_close(log_prob, categorical_log_prob(logits, action))
    assert bool((policy.best_action(torch.zeros(1, 5, 6)) == 0).all())


# --- normalisation


def test_running_moments_equal_numpy_over_all_batches():
    moments = RunningMoments(P, 5, CPU)
    batches = [normal(P, count, 5, seed=count) * 3.0 + 7.0 for count in (100, 7, 300, 1)]
    for batch in batches:
        moments.update(batch)
    everything = np.concatenate([batch.numpy() for batch in batches], axis=1).astype(np.float64)
    np.testing.assert_allclose(moments.mean[:, 0].numpy(), everything.mean(axis=1), rtol=1e-4)
    np.testing.assert_allclose(moments.var[:, 0].numpy(), everything.var(axis=1), rtol=1e-4)


def test_observations_are_normalised_and_clipped():
    normaliser = ObservationNormaliser(P, 4, CPU)
    batch = normal(P, 500, 4, seed=1) * torch.tensor([0.1, 1.0, 50.0, 0.0]) + 3.0
    normaliser.update(batch)
    seen = normaliser(batch)
    assert float(seen.mean(dim=1).abs().max()) < 0.02
    torch.testing.assert_close(seen.std(dim=1)[:, :3], torch.ones(P, 3), atol=0.02, rtol=0.0)
    assert float(normaliser(batch * 1e6).abs().max()) == 10.0


def test_rewards_are_divided_by_the_deviation_of_the_discounted_return():
    """Returns restart at an episode's end and go on from one rollout to the next; the mean is not taken away."""
    scaler = RewardScaler(P, N, DISCOUNT, CPU)
    factors = torch.tensor([1e-3, 1.0, 1e4]).view(1, P, 1)
    running, history = np.zeros((P, N)), []
    for rollout in range(4):
        reward = (normal(H, P, N, seed=rollout) + 0.5) * factors
        done = chance(H, P, N, share=0.1, seed=10 + rollout)
        scaled = scaler(reward, done)
        for t in range(H):
            running = running * DISCOUNT + reward[t].numpy()
            history.append(running.copy())
            running = np.where(done[t].numpy(), 0.0, running)
        deviation = np.std(np.stack(history), axis=(0, 2))
        expected = reward.numpy() / deviation.reshape(1, P, 1)
        np.testing.assert_allclose(scaled[:, 1:].numpy(), np.clip(expected, -10, 10)[:, 1:], rtol=2e-3)
    # A tiny reward is scaled up a little less: at first its deviation is taken to be one.
    assert 0.05 < float(scaled[:, 0].std() / scaled[:, 2].std()) <= 1.0


@pytest.mark.parametrize("sizes", [[3, 32, 32, 1], [6, 64, 64, 2], [12, 48, 16, 1], [4, 1]])
@pytest.mark.parametrize("rows", [1, 10, 16, 33, 64, 512, 2048])
def test_a_members_bits_do_not_depend_on_its_neighbours(sizes: list[int], rows: int):
    """Any run of members, also one alone, against the whole. Widths off 64-byte borders need MKL_CBWR: test_pool."""

    def differentiate(first: int, last: int) -> list[Tensor]:
        stack = ParameterStack(last - first, layer_shapes(sizes), CPU)
        stack.flat.copy_(flat[first:last])
        output = forward(stack.views, x[first:last])
        kept = forward_kept(stack.views, x[first:last])
        backward(stack.views, stack.grad_views, kept, upstream[first:last].clone())
        return [output, stack.grad]

    flat = normal(5, ParameterStack(1, layer_shapes(sizes), CPU).flat.shape[1], seed=1)
    x, upstream = normal(5, rows, sizes[0], seed=2), normal(5, rows, sizes[-1], seed=3)
    whole = differentiate(0, 5)
    for first, last in ((0, 1), (3, 4), (4, 5), (0, 2), (1, 4), (2, 5)):
        for part, expected in zip(differentiate(first, last), whole, strict=True):
            assert torch.equal(part, expected[first:last])
