// Renders the sections of the cluster page. Texts are set as textContent only, so no object can add markup.
'use strict'

const sections = {}
const byId = (id) => document.getElementById(id)

function element(tag, className = '', ...children) {
  const made = document.createElement(tag)
  if (className) made.className = className
  made.append(...children.map((one) => (one instanceof Node ? one : String(one ?? ''))))
  return made
}

function link(text, url) {
  if (!url || !/^https?:\/\//.test(url)) return text
  const made = element('a', '', text)
  made.href = url
  made.target = '_blank'
  made.rel = 'noopener'
  return made
}

function span(milliseconds) {
  const seconds = Math.max(0, Math.round(milliseconds / 1000))
  if (seconds < 120) return `${seconds} s`
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`
  if (seconds < 172800) return `${Math.round(seconds / 3600)} h`
  return `${Math.round(seconds / 86400)} d`
}

const since = (time) => (time ? `${span(Date.now() - Date.parse(time))} ago` : '')

function until(time) {
  if (!time) return ''
  const left = Date.parse(time) - Date.now()
  return left < 0 ? element('span', 'bad', `${span(-left)} over`) : `in ${span(left)}`
}

const price = (value) => (value == null ? '' : value.toFixed(4))
const cell = (content, className = '') => element('td', className, content)
const row = (...cells) => element('tr', '', ...cells)

function fill(name, rows) {
  const section = byId(name)
  section.querySelector('tbody').replaceChildren(...rows)
  showEmpty(section, rows.length === 0)
}

function showEmpty(section, empty) {
  section.querySelector('table').hidden = empty
  section.querySelector('.nothing').hidden = !empty
}

const phase = (one) =>
  element('span', one.overdue ? 'bad' : '', one.phase + (one.overdue ? ' overdue' : '') + (one.paused ? ' paused' : ''))

function nodeCell(name) {
  const made = cell(name.split('.')[0])
  made.title = name
  return made
}

function nodeRow(one) {
  return row(
    cell(link(one.nodeClaim, one.workflowUrl)),
    nodeCell(one.node),
    cell(phase(one)),
    cell(since(one.since)),
    cell(until(one.deadline)),
    cell(one.instanceType),
    cell(one.zone),
    cell(one.capacityType),
    cell(price(one.pricePerHour), 'number'),
    cell(one.blockedBy, 'text'),
  )
}

function poolBody(name, nodes) {
  const cost = nodes.reduce((sum, one) => sum + (one.pricePerHour ?? 0), 0)
  const title = element('th', '', `${name || 'no NodePool'}: ${nodes.length} ${nodes.length === 1 ? 'node' : 'nodes'}, ${price(cost)} $/h`)
  title.colSpan = 10
  title.scope = 'rowgroup'
  return element('tbody', '', element('tr', 'pool', title), ...nodes.map(nodeRow))
}

const MAX_ROWS = 500

function renderNodes() {
  const all = sections.nodes?.nodes ?? []
  const words = byId('filter').value.toLowerCase().split(/\s+/).filter(Boolean)
  const matches = (one) => {
    const text = [one.nodeClaim, one.node, one.nodePool, one.phase, one.instanceType, one.zone, one.capacityType, one.code]
    return words.every((word) => text.join(' ').toLowerCase().includes(word))
  }
  const found = all.filter(matches)
  const table = byId('nodes').querySelector('table')
  for (const body of [...table.tBodies]) body.remove()
  table.append(...[...groupByPool(found.slice(0, MAX_ROWS))].map(([name, nodes]) => poolBody(name, nodes)))
  if (found.length > MAX_ROWS) {
    const more = element('td', 'muted', `${found.length - MAX_ROWS} more nodes: filter the list`)
    more.colSpan = 10
    table.append(element('tbody', '', row(more)))
  }
  showEmpty(byId('nodes'), found.length === 0)
}

function groupByPool(nodes) {
  const pools = new Map()
  for (const one of nodes) pools.set(one.nodePool, [...(pools.get(one.nodePool) ?? []), one])
  return pools
}

function attentionRows() {
  const nodes = (sections.nodes?.nodes ?? []).filter((one) => one.overdue || one.blockedBy.includes('needs attention:'))
  const pods = (sections.pods?.groups ?? []).filter((one) => !one.verdict.clears_by_itself)
  const pools = Object.entries(sections.pods?.nodePoolsNotReady ?? {})
  const { late = [], invalidObjects = [], paused = [] } = sections.attention ?? {}
  return [
    ...nodes.map((one) => [`NodeClaim ${one.nodeClaim}`, one.code, one.since, one.blockedBy, one.workflowUrl]),
    ...pods.map((one) => [`pod ${podNames(one)}`, one.verdict.code, one.verdict.since, `needs attention: ${one.verdict.remedy}; ${one.verdict.sentence}`]),
    ...pools.map(([name, messages]) => [`NodePool ${name}`, 'NodePoolNotReady', null, Object.values(messages).join('; ')]),
    ...late.map((one) => [one.what, one.code, one.since, one.blockedBy]),
    ...invalidObjects.map((one) => [`${one.kind} ${one.name}`, 'InvalidObject', null, one.message]),
    ...paused.map((one) => [one.what, 'Paused', null, one.pause ? `${one.pause.by}: ${one.pause.reason}` : '']),
  ].map(([what, code, at, why, url]) => row(cell(link(what, url)), cell(code, 'warn'), cell(since(at)), cell(why, 'text')))
}

const podNames = (group) => (group.pods > 1 ? `${group.pod} and ${group.pods - 1} more` : group.pod)

function renderPods() {
  const { groups = [], unknown = '' } = sections.pods ?? {}
  const rows = groups.map(({ pod, pods, verdict }) =>
    row(
      cell(pod),
      cell(pods, 'number'),
      cell(verdict.code, verdict.clears_by_itself ? '' : 'warn'),
      cell(since(verdict.since)),
      cell(verdict.sentence, 'text'),
      cell(verdict.clears_by_itself ? 'nothing, it clears by itself' : verdict.remedy, 'text'),
    ),
  )
  fill('pods', rows)
  if (unknown) showProblem('pods', unknown)
}

function renderCommands() {
  const rows = (sections.commands?.commands ?? []).map((one) =>
    row(
      cell(link(one.name, one.workflowUrl)),
      cell(one.nodePool),
      cell(one.step),
      cell(since(one.since)),
      cell(until(one.deadline)),
      cell(one.blockedBy, 'text'),
    ),
  )
  fill('commands', rows)
}

function renderPlan() {
  const { commands = [], nodes = 0, eligible = 0, ineligible = {}, blocked = '' } = sections.plan ?? {}
  const rows = commands.map((one) =>
    row(
      cell(one.reason),
      cell(one.nodes.join(', '), 'text'),
      cell((one.replacements ?? []).join('; ') || 'nothing', 'text'),
      cell(one.pods ?? 0, 'number'),
      cell(price(one.price_before ?? 0), 'number'),
      cell(price(one.price_after ?? 0), 'number'),
    ),
  )
  fill('plan', rows)
  const causes = Object.entries(ineligible).map(([cause, count]) => `${cause} ${count}`)
  const blockers = causes.length ? `; blocked: ${causes.join(', ')}` : ''
  byId('plan').querySelector('.note').textContent = `${nodes} nodes, ${eligible} eligible${blockers}`
  if (blocked) showProblem('plan', blocked)
}

function renderEvents() {
  const rows = (sections.events?.events ?? []).map((one) =>
    row(
      cell(since(one.received_at)),
      cell(`${one.kind} ${one.code ?? ''}`),
      cell(link(one.nodeClaim, one.workflowUrl)),
      cell(one.nodePool),
      cell(one.policy || 'none'),
      cell(one.action, 'text'),
      cell(one.done, 'text'),
    ),
  )
  fill('events', rows)
}

function renderSummary(attention) {
  const nodes = sections.nodes?.nodes ?? []
  const ready = nodes.filter((one) => one.phase === 'Ready').length
  const pods = (sections.pods?.groups ?? []).reduce((sum, one) => sum + one.pods, 0)
  const items = [
    [nodes.length, nodes.length === 1 ? 'node' : 'nodes'],
    [ready, 'ready'],
    [price(sections.nodes?.pricePerHour ?? 0), '$/h'],
    [pods, pods === 1 ? 'pending pod' : 'pending pods'],
    [attention, attention === 1 ? 'needs attention' : 'need attention'],
  ]
  byId('summary').replaceChildren(
    ...items.map(([value, name]) => element('li', '', element('b', attention && name.endsWith('attention') ? 'bad' : '', value), ` ${name}`)),
  )
}

function showProblem(name, text) {
  const problem = byId(name).querySelector('.problem')
  problem.textContent = text
  problem.hidden = !text
}

function render() {
  renderNodes()
  renderPods()
  renderCommands()
  renderPlan()
  renderEvents()
  const attention = attentionRows()
  fill('attention', attention)
  renderSummary(attention.length)
}

function connect() {
  const source = new EventSource('/events')
  const state = byId('connection')
  source.onopen = () => { state.textContent = 'connected' }
  source.onerror = () => { state.textContent = 'not connected: the shown state is old' }
  for (const name of ['nodes', 'attention', 'pods', 'commands', 'plan', 'events']) {
    source.addEventListener(name, (event) => {
      const { data, error } = JSON.parse(event.data)
      if (data) sections[name] = data
      showProblem(name, error ? `not updated: ${error}` : '')
      render()
    })
  }
}

byId('filter').addEventListener('input', renderNodes)
setInterval(render, 10000)
fetch('/cluster').then((response) => response.json()).then(({ cluster }) => {
  byId('cluster').textContent = cluster
  document.title = `${cluster} - Tenure`
})
connect()
